"""Jobs that wait for other code: what has waited long enough moves on, and what it waits for may come.

`release_due` holds what was handed back when its time is over or nobody is left whom it was for, and makes held jobs
ready once their code is live again; `release_held` is an operator's. Handing back is `hand_back`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...domain.audit import AuditEntry
from ...domain.errors import JobStateConflict
from ...domain.job import JobId
from ...domain.state import DeadReason, State
from ..protocol import Wake
from .absent import not_found
from .audit import audited
from .buckets import DEAD, TOKEN
from .callbacks import TELL_ENDS
from .cancel import no_token
from .database import Database, Raw, Row
from .hand_back import HOUR
from .keys import END_KEYS
from .names import name_ids
from .notify import notify
from .pinned import STAYS, served
from .waits import tell_parents

_LOOKS = 100

# Of a handed row `h`: its token is ready and has nobody to wait for, or was claimed since; or the row is left over.
_KEPT = "name_id <> (select j.name_id from outlast.job j where j.id = h.job_id)"
_PLACE_OF = f"""
left join lateral (
  select r.ctid as place, r.claim_no as token_no, false as is_gated from outlast.ready r
  where r.job_id = h.job_id and r.moved and r.{_KEPT}
  union all
  select g.ctid, g.claim_no, true from outlast.gate g where g.job_id = h.job_id and g.{_KEPT} offset 0) r
  on true"""  # noqa: S608  fragments of our own
_IS_OVER = f"""(
    case when r.place is not null
      then h.until_at <= outlast.clock() or r.token_no > h.claim_no
        or (select true from outlast.job j where j.id = h.job_id and {served("h.version", "j.queue")}) is null
      else h.until_at <= outlast.clock()
        and (select true from outlast.running x where x.job_id = h.job_id) is null
        and (select true from outlast.waiting x where x.job_id = h.job_id) is null end)"""  # noqa: S608  same
# Code that was live when a job was held does not release it: that its time was over is why it is held. The minute is
# for a worker that registered while the job was held.
_COMES = f"""
outlast.worker w cross join lateral unnest(w.queues) q(queue)
  cross join lateral (
    select x.job_id, x.name_id, x.ctid as place from outlast.held x
    where x.version = w.code_version and x.queue = q.queue and x.held_at <= w.started_at + interval '1 minute'
    {{bound}} offset 0) x
  where {STAYS}"""  # noqa: S608  same
MUST_RELEASE = f"""
exists (select from outlast.handed h {_PLACE_OF} where {_IS_OVER})
  or exists (select from {_COMES.replace("{bound}", "limit 1")})"""  # noqa: S608  same

_NAMES_TO_COME = f"""
select distinct (select n.name from outlast.job_name n where n.id = x.name_id) || '@' || w.code_version as name
from {_COMES.replace("{bound}", "")}"""  # noqa: S608  same

_RELEASE_DUE = f"""
with over as materialized (
  select h.job_id, h.version, h.claim_no, h.reason, h.or_dead, r.place, r.is_gated from outlast.handed h {_PLACE_OF}
  where {_IS_OVER} order by h.job_id limit $1 for update of h skip locked),
own as materialized (
  select r.ctid from outlast.ready r
  where r.ctid = any(array(select place from over where not is_gated)) for update skip locked),
own_gated as materialized (
  select r.ctid from outlast.gate r
  where r.ctid = any(array(select place from over where is_gated)) for update skip locked),
u as (delete from outlast.ready where ctid = any(array(select ctid from own)) returning *),
v as (delete from outlast.gate where ctid = any(array(select ctid from own_gated)) returning *),
t as materialized (
  select job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts from u
  union all select job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts from v),
g as materialized (
  select t.*, o.version, o.reason, coalesce(e.name_id, t.name_id) as true_id, e.key_hash, e.calls_back,
    case when t.claim_no > o.claim_no then 'ready' when o.or_dead then 'dead' else 'held' end as way
  from t cross join lateral (select o.* from over o where o.job_id = t.job_id offset 0) o
  left join lateral (
    select j.name_id, j.key_hash, j.callback is not null as calls_back
    from outlast.job j where j.id = t.job_id offset 0) e on true),
moot as (
  delete from outlast.handed where job_id = any(array(
    select job_id from over where place is null union all select job_id from g))),
hel as (
  insert into outlast.held(job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts, reason, version)
  select job_id, queue, rank, true_id, attempt, claim_no, crashes, interrupts, reason, version from g
  where way = 'held'),
fin as (
  insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts, reason)
  select job_id, {DEAD}, attempt, claim_no, crashes, interrupts, '{DeadReason.TERMINAL}' from g where way = 'dead'),
come as materialized (
  select distinct on (x.job_id) x.job_id, w.code_version
  from {_COMES.replace("{bound}", "limit $1")} order by x.job_id limit $1),
h as (
  delete from outlast.held where ctid = any(array(
    select x.ctid from outlast.held x
    where x.job_id = any(array(select job_id from come)) and x.version is not null for update skip locked))
  returning *),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank & -2, job_id, name_id, attempt, claim_no, crashes, interrupts from (
    select h.queue, h.rank, h.job_id, coalesce(p.id, h.name_id) as name_id, h.attempt, h.claim_no, h.crashes,
      h.interrupts
    from h
    left join lateral (select n.name from outlast.job_name n where n.id = h.name_id offset 0) n on true
    left join lateral (select p.id from outlast.job_name p where p.name = n.name || '@' || h.version offset 0) p on true
    union all
    select queue, rank, job_id, true_id, attempt, claim_no, crashes, interrupts from g where way = 'ready') r
  order by job_id),
hnd as (
  insert into outlast.handed(job_id, version, until_at, claim_no, reason)
  select job_id, version, outlast.clock() + {HOUR}, claim_no, reason from h
  on conflict (job_id) do update set version = excluded.version, until_at = excluded.until_at,
    claim_no = excluded.claim_no, reason = excluded.reason, or_dead = false),
ended as materialized (
  select job_id, key_hash, calls_back, {DEAD} as state, '{DeadReason.TERMINAL}' as reason, attempt
  from g where way = 'dead'),
{TELL_ENDS.strip()},
{END_KEYS.strip()}
select job_id, way from g union all select job_id, 'released' from h"""  # noqa: S608  same

_RELEASE_HELD = f"""
with e as materialized (
  select j.id, j.seq, j.queue, j.priority, j.name_id from outlast.job j
  where j.id = $1 and ($2::text is null or j.tenant = $2)),
h as (delete from outlast.held where job_id = (select id from e) returning *),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select h.queue, h.rank & -2, h.job_id, e.name_id, h.attempt, h.claim_no, h.crashes, h.interrupts
  from h cross join e)
select (select count(*) from h) as released, t.state
from e left join lateral ({TOKEN}) t on true"""  # noqa: S608  same


async def release_due(db: Database, batch: int = 1000) -> int:
    """Move up to `batch` jobs each of those handed back and of those held; gives how many it moved."""
    names = await db.run(lambda conn: conn.fetch(db.in_schema(_NAMES_TO_COME)))
    await name_ids(db, [row["name"] for row in names])
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_RELEASE_DUE), batch))
    ways = {row["way"] for row in rows}
    if ways & {"ready", "released"}:
        await notify(db, Wake.READY)
    dead = [row["job_id"] for row in rows if row["way"] == "dead"]
    if dead:
        await notify(db, Wake.FINISHED)
        await tell_parents(db, dead)
    return sum(row["way"] != "ready" for row in rows)


async def release_held(
    db: Database, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
) -> None:
    """Make a held job ready, for code of any version.

    Raises:
        OutlastError: `JOB_NOT_FOUND`; `JOB_STATE_CONFLICT` when it is not held.
    """

    async def look(conn: Raw) -> Row | None:
        return await conn.fetchrow(db.in_schema(_RELEASE_HELD), job_id, tenant)

    for _ in range(_LOOKS):
        found = await audited(db, look, audit, lambda entry, row: entry if row and row["released"] else None)
        if found is None:
            raise not_found(job_id)
        if found["released"]:
            await notify(db, Wake.READY)
            return
        # Held, and yet not released: somebody else moved it, and by this statement's snapshot it still is.
        if found["state"] not in {None, State.HELD}:
            raise _not_held(job_id, found)
    raise no_token(job_id)


def _not_held(job_id: JobId, found: Mapping[str, str]) -> JobStateConflict:
    return JobStateConflict(
        f"job {job_id} is {found['state']}, and only held jobs can be released",
        fix="nothing has to be released; look at the job's state again",
        state=found["state"],
    )
