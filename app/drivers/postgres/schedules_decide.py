"""`decide` and `fire`: occurrences become rows, and jobs, in one commit.

The schedule's row is locked first, then what an enqueue locks, in its order. Somebody else who decides it right now is
not waited for: a scheduler that is frozen holds up nobody but its own schedule, and that until its session is ended.
The key of the occurrence's row is the guard behind the lock. Called by `schedules`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from ...domain.audit import AuditEntry
from ...domain.errors import OutlastError
from ...domain.job import Enqueued, JobId, NewJob
from ...domain.outbox import is_of_the_row
from ...domain.schedule import WHY_DEDUPED, WHY_OVERLAP, Decided, OccurrenceOutcome, Overlap, Plan, Planned, refused
from ..protocol import Wake
from .audit import keep
from .database import Database, Raw
from .enqueue import store_within
from .enqueue_batch import HalfWonError
from .names import name_ids
from .notify import notify
from .rows import plain
from .schedules_declare import unknown
from .sqlstate import Taken, translate

T = TypeVar("T")

_OUTCOMES = (OccurrenceOutcome.FIRED, OccurrenceOutcome.SKIPPED)

_LOCK = """
select digest, paused_at is not null as is_paused from outlast.schedule where name = $1 for update skip locked"""
_WAIT = "select outlast.clock() as now from outlast.schedule where name = $1 for update"

_KNOWN = "select at from outlast.occurrence where schedule = $1 and at = any($2::timestamptz[])"

# Of the newest that fired: a schedule that skips has at most one, one that did not skip before may have several.
_LIVE = """
select o.job_id from (
  select o.at, o.job_id from outlast.occurrence o
  where o.schedule = $1 and o.outcome = 0 and o.job_id is not null order by o.at desc limit 100) o
where exists (select from outlast.job j where j.id = o.job_id)
  and not exists (select from outlast.finished f where f.job_id = o.job_id)
order by o.at desc limit 1"""

_KEEP = """
insert into outlast.occurrence(schedule, at, outcome, why, job_id, fired_by)
select $1, u.at, u.outcome, u.why, u.job_id, $6
from unnest($2::timestamptz[], $3::smallint[], $4::text[], $5::uuid[]) u(at, outcome, why, job_id)"""
_ADVANCE = "update outlast.schedule set watermark = greatest(watermark, $2) where name = $1"
_AT = """
select coalesce(max(at), $2) from outlast.occurrence where schedule = $1 and at >= $2 and at < $2 + interval '1 s'"""

_MICROSECOND = timedelta(microseconds=1)
# Each repetition means that somebody else committed in between.
_TRIES = 10


async def decide(db: Database, plan: Plan) -> tuple[Decided, ...] | None:
    """Decide the occurrences of a plan that are not decided yet; None: the plan does not hold now."""

    async def once(conn: Raw) -> tuple[Decided, ...] | None:
        async with conn.transaction():
            row = await conn.fetchrow(db.in_schema(_LOCK), plan.name)
            if row is None or (row["digest"], row["is_paused"]) != (plan.digest, plan.is_paused):
                return None
            wanted = [planned.at for planned in plan.planned]
            known = {each["at"] for each in await conn.fetch(db.in_schema(_KNOWN), plan.name, wanted)}
            deciding = _Deciding(db, conn, plan, names)
            decided = [await deciding.one(planned) for planned in plan.planned if planned.at not in known]
            await _keep(db, conn, plan.name, decided)
            await conn.execute(db.in_schema(_ADVANCE), plan.name, plan.until)
            return tuple(decided)

    jobs = {planned.job.id: planned.job for planned in plan.planned if planned.job is not None}
    names = await name_ids(db, {job.name for job in jobs.values()})
    decided = await _repeated(db, once)
    for one in decided or ():
        if one.job_id is not None and one.job_id in jobs:
            await _ring(db, jobs[one.job_id])
    return decided


async def fire(db: Database, name: str, job: NewJob, *, by: str, audit: AuditEntry | None) -> Decided:
    """Enqueue a job of a schedule now.

    Raises:
        NotFound: there is no such schedule.
        OutlastError: what refused the job; nothing is kept.
    """
    names = await name_ids(db, {job.name})

    async def once(conn: Raw) -> Decided:
        async with conn.transaction():
            now: datetime | None = await conn.fetchval(db.in_schema(_WAIT), name)
            if now is None:
                raise unknown(name)
            answer = (await store_within(db, conn, [job], names))[0]
            if isinstance(answer, OutlastError):
                raise answer
            # Never on a whole minute, where an occurrence of the rule may stand.
            least = now if now.microsecond else now + _MICROSECOND
            last: datetime = await conn.fetchval(db.in_schema(_AT), name, least - _MICROSECOND)
            decided = replace(_answered(answer, least), at=last + _MICROSECOND)
            await _keep(db, conn, name, [decided], by=by)
            await keep(
                db,
                conn,
                None
                if audit is None
                else audit.came_to(decided.outcome, at=decided.at.isoformat(), job_id=decided.job_id),
            )
            return decided

    decided = await _repeated(db, once)
    await _ring(db, job)
    return decided


class _Deciding:
    """The occurrences of one plan, one after the other, in one transaction."""

    def __init__(self, db: Database, conn: Raw, plan: Plan, names: Mapping[str, int]) -> None:
        self._db = db
        self._conn = conn
        self._plan = plan
        self._names = names
        self._fired: JobId | None = None

    async def one(self, planned: Planned) -> Decided:
        """Decide one occurrence; its row is written with the others."""
        if planned.job is None:
            return Decided(at=planned.at, outcome=OccurrenceOutcome.SKIPPED, why=planned.why)
        live = await self._live() if self._plan.overlap is Overlap.SKIP else None
        if live is not None:
            return Decided(at=planned.at, outcome=OccurrenceOutcome.SKIPPED, why=WHY_OVERLAP, job_id=live)
        answer = await self._enqueue(planned.job)
        if not isinstance(answer, Enqueued):
            return refused(planned.at, answer)
        decided = _answered(answer, planned.at)
        if decided.outcome is OccurrenceOutcome.FIRED:
            self._fired = decided.job_id
        return decided

    async def _live(self) -> JobId | None:
        """Give a job of an occurrence that has not ended: of this plan, or one that is kept."""
        if self._fired is not None:
            return self._fired
        found = await self._conn.fetchval(self._db.in_schema(_LIVE), self._plan.name)
        return None if found is None else JobId(plain(found))

    async def _enqueue(self, job: NewJob) -> Enqueued | Exception:
        """Enqueue one job in a savepoint: one that the store refuses leaves the others."""
        try:
            async with self._conn.transaction():
                return (await store_within(self._db, self._conn, [job], self._names))[0]
        except HalfWonError:
            raise
        except Exception as error:
            known = translate(error) or error
            if isinstance(known, Taken) or not is_of_the_row(known):
                raise
            return known


def _answered(answer: Enqueued, at: datetime) -> Decided:
    outcome = OccurrenceOutcome.SKIPPED if answer.deduped else OccurrenceOutcome.FIRED
    return Decided(at=at, outcome=outcome, why=WHY_DEDUPED if answer.deduped else None, job_id=answer.id)


async def _keep(db: Database, conn: Raw, name: str, decided: list[Decided], *, by: str | None = None) -> None:
    if not decided:
        return
    ats, outcomes = [one.at for one in decided], [_OUTCOMES.index(one.outcome) for one in decided]
    whys, job_ids = [one.why for one in decided], [one.job_id for one in decided]
    await conn.execute(db.in_schema(_KEEP), name, ats, outcomes, whys, job_ids, by)


async def _ring(db: Database, job: NewJob) -> None:
    await notify(db, Wake.READY if job.delay is None else Wake.DELAYED)


async def _repeated(db: Database, once: Callable[[Raw], Awaitable[T]]) -> T:
    """Run a transaction again whole when it lost a race; what it decided before is not there then."""
    for _ in range(_TRIES - 1):
        try:
            return await db.run(once)
        except (Taken, HalfWonError):
            continue
    return await db.run(once)
