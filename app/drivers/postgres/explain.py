"""`situation`: one job and all that decides about its claim, in one snapshot.

Statements in one transaction of one snapshot: the job, its place in its queue, its limits where it has any, the
workers. Whether it can be claimed is asked with the claim's own fragment, and by its limits as an admission asks. A
reader's verb: counting what is before it is bounded, and stops at the connection's time limit like every statement.
"""

from __future__ import annotations

from dataclasses import replace

from ...domain.job import JobId
from ...domain.limit import LimitFacts
from ...domain.reason import MOST_AHEAD, PauseView, PinView, Situation
from ...domain.snapshot import JobView, WorkerView
from .buckets import FIRST_RANK
from .claimable import fits, is_open
from .database import Database, Raw, Row
from .describe import describe_on
from .explain_turns import TurnAhead, turn_on
from .queues import PAUSED
from .slots_view import limits_on
from .tenant_wall import enter
from .workers import workers_on

_COLUMNS = "r.queue, r.rank, r.seq, r.job_id, r.name_id, r.crashes"
_READY = f"select {_COLUMNS}, false as is_gated from outlast.ready r"  # noqa: S608  fragments of our own
_GATED = f"select {_COLUMNS}, true from outlast.gate r"  # noqa: S608  same

_AHEAD = """(select count(*) from (
    select from outlast.ready x
    where x.queue = r.queue and (x.rank, x.seq) < (r.rank, r.seq) limit $2::int) x)"""

# A worker that serves queue, name and version knows the token's name, whichever it is, and can be one that is idle.
# Where no token is ready there is no name to be known, and the answer is null.
_PLACE = f"""
select outlast.clock() as at, q.paused_at, q.paused_by, q.pause_reason, q.paused_until, q.concurrency,
  y.code_version as published, e.limit_names is not null as is_limited, {PAUSED} as is_paused,
  case when q.concurrency is not null then (
    select count(*) from outlast.running r where r.queue = q.name) end as in_queue,
  {is_open("e.queue")} and {fits("array[r.name_id]", "true")} as is_claimable,
  r.is_gated is true as is_gated,
  case when r.is_gated then {_AHEAD.replace("ready", "gate")} else {_AHEAD} end as ahead,
  case when r.name_id <> e.name_id then p.name end as pinned_name, h.until_at
from outlast.job e
left join lateral (
  {_READY} where r.queue = e.queue and r.rank = {FIRST_RANK} and r.seq = e.seq and r.job_id = e.id
  union all {_READY} where r.job_id = e.id and r.moved
  union all {_GATED} where r.job_id = e.id) r on true
left join lateral (select p.name from outlast.job_name p where p.id = r.name_id offset 0) p on true
left join lateral (select h.until_at from outlast.handed h where h.job_id = e.id offset 0) h on true
left join lateral (select q.* from outlast.queue q where q.name = e.queue offset 0) q on true
left join lateral (
  select y.code_version from outlast.job_type y
  where y.name = (select n.name from outlast.job_name n where n.id = e.name_id) offset 0) y on true
where e.id = $1"""  # noqa: S608  fragments of our own


async def situation(db: Database, job_id: JobId, *, tenant: str | None = None) -> Situation | None:
    """Give a job's situation, or None."""

    async def look(conn: Raw) -> Situation | None:
        async with conn.transaction(isolation="repeatable_read"):
            await enter(db, conn, tenant)
            job = await describe_on(db, conn, job_id, tenant=tenant)
            place = None if job is None else await conn.fetchrow(db.in_schema(_PLACE), job_id, MOST_AHEAD)
            if job is None or place is None:
                return None
            under = await limits_on(db, conn, job_id, tenant=tenant) if place["is_limited"] else None
            turn = await turn_on(db, conn, job_id) if place["is_gated"] else None
            limits = () if under is None else under.limits
            return _situation(job, place, limits, turn, await workers_on(db, conn))

    return await db.run(look)


def _situation(
    job: JobView, place: Row, limits: tuple[LimitFacts, ...], turn: TurnAhead | None, workers: tuple[WorkerView, ...]
) -> Situation:
    return Situation(
        at=place["at"],
        job=replace(job, payload=None, result=None),
        is_claimable=bool(place["is_claimable"]) and all(facts.is_free for facts in limits),
        pause=_pause(place),
        concurrency=place["concurrency"],
        running=place["in_queue"] or 0,
        pin=_pin(place),
        ahead=place["ahead"] if turn is None else turn.ahead,
        turn=None if turn is None else turn.facts,
        published=place["published"],
        limits=limits,
        workers=workers,
    )


def _pause(place: Row) -> PauseView | None:
    if not place["is_paused"]:
        return None
    by, reason, until = place["paused_by"], place["pause_reason"], place["paused_until"]
    return PauseView(at=place["paused_at"], by=by, reason=reason, until=until)


def _pin(place: Row) -> PinView | None:
    name: str | None = place["pinned_name"]
    return None if name is None else PinView(version=name.partition("@")[2], until=place["until_at"])
