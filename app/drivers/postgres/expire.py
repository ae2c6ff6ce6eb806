"""`expire`: jobs that wait past their `max_queue_time` or `deadline` become dead letters.

Owns the `expiry` rows of jobs that have such a limit (kind 0: never started in time, kind 1: deadline). A running job
is its worker's to stop; its rows are left for later without taking a place in the batch. Rows whose job has ended or
started meanwhile are cleared away. A job has started once an attempt of it left a row on the ledger, or snoozed or
suspended (which clears the row of kind 0): a claim that was only handed back is no start. Called by any worker.
"""

from __future__ import annotations

from ...domain.job import JobId
from ...domain.snapshot import Expired
from ...domain.state import DeadReason
from ..protocol import Wake
from .buckets import DEAD, DEADLINE, FIRST_RANK, NOT_STARTED, TOKEN
from .callbacks import TELL_ENDS
from .database import Database, Row
from .keys import END_KEYS
from .notify import notify
from .rows import plain
from .waits import tell_parents

_COUNTERS = "job_id, attempt, claim_no, crashes, interrupts"
# A token is taken if its deadline has passed, or if the job has never started (then its queue time has).
_FITS = "(e.deadline_at is not null or not e.begun)"

# Of a limit `x`: it has passed, and not over a running job, which is its worker's to stop.
PASSED = "x.at <= outlast.clock() and not exists (select from outlast.running r where r.job_id = x.job_id)"

_EXPIRE = f"""
with due as materialized (
  select x.job_id, x.kind, x.at from outlast.expiry x
  where {PASSED}
  order by x.at limit $1 for update of x skip locked),
e as materialized (
  select d.job_id as id, d.start_by, d.deadline_at, j.seq, j.queue, j.priority, j.name_id, j.key_hash, j.parent_id,
    j.calls_back,
    exists (select from outlast.attempt a where a.job_id = d.job_id) as begun
  from (select job_id, min(at) filter (where kind = {NOT_STARTED}) as start_by,
          min(at) filter (where kind = {DEADLINE}) as deadline_at
        from due group by job_id) d
  cross join lateral (
    select j.seq, j.queue, j.priority, j.name_id, j.key_hash, j.parent_id, j.callback is not null as calls_back
    from outlast.job j where j.id = d.job_id offset 0) j),
rdy_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.ready t
    where t.queue = e.queue and t.rank = {FIRST_RANK} and t.seq = e.seq and t.job_id = e.id and {_FITS}
    for update skip locked) x
  union all
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.ready t where t.job_id = e.id and t.moved and {_FITS} for update skip locked) x),
gat_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.gate t where t.job_id = e.id and {_FITS} for update skip locked) x),
wai_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.waiting t where t.job_id = e.id and {_FITS} for update skip locked) x),
hld_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.held t where t.job_id = e.id and e.deadline_at is not null for update skip locked) x),
sus_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.suspended t
    where t.job_id = e.id and (e.deadline_at is null) is false
    for update skip locked) x),
rdy as (delete from outlast.ready where ctid = any(array(select ctid from rdy_rows)) returning {_COUNTERS}),
gat as (delete from outlast.gate where ctid = any(array(select ctid from gat_rows)) returning {_COUNTERS}),
wai as (delete from outlast.waiting where ctid = any(array(select ctid from wai_rows)) returning {_COUNTERS}),
hld as (delete from outlast.held where ctid = any(array(select ctid from hld_rows)) returning {_COUNTERS}),
sus as (delete from outlast.suspended where ctid = any(array(select ctid from sus_rows)) returning {_COUNTERS}),
gone as materialized (
  select g.*, e.queue, e.name_id, e.key_hash, e.parent_id, e.calls_back,
    case when not e.begun and (e.deadline_at <= e.start_by) is not true and e.start_by is not null
      then '{DeadReason.EXPIRED}' else '{DeadReason.DEADLINE}' end as reason
  from (
    select * from rdy union all select * from gat union all select * from wai union all select * from hld
    union all select * from sus) g
  join e on e.id = g.job_id),
fin as (
  insert into outlast.finished({_COUNTERS}, state, reason) select {_COUNTERS}, {DEAD}, reason from gone),
ended as materialized (select job_id, key_hash, calls_back, {DEAD} as state, reason, attempt from gone),
{TELL_ENDS},
{END_KEYS},
moot as materialized (
  select d.job_id, d.kind from due d
  left join lateral (
    select j.id, j.seq, j.queue, j.priority from outlast.job j where j.id = d.job_id offset 0) e on true
  left join lateral ({TOKEN}) t on true
  where d.job_id = any(array(select job_id from gone)) or e.id is null or t.finished_at is not null
    or (d.kind = {NOT_STARTED}
      and exists (select from outlast.attempt a where a.job_id = d.job_id))),
cleared as (delete from outlast.expiry x using moot m where x.job_id = m.job_id and x.kind = m.kind)
select null::uuid as job_id, null::text as queue, null::text as reason, null::text as name,
  null::uuid as parent_id, (select count(*) from due) as looked, (select count(*) from moot) as cleared
union all
select g.job_id, g.queue, g.reason, n.name, g.parent_id, null, null
from gone g left join lateral (select n.name from outlast.job_name n where n.id = g.name_id offset 0) n on true"""  # noqa: S608  fragments of our own


async def expire(db: Database, batch: int = 1000) -> tuple[Expired, ...]:
    """End waiting jobs whose time limit has passed, by id; fewer than `batch` mean that no more are left.

    A job that somebody else is moving at this moment is left for the next call.
    """
    ended: list[Expired] = []
    children: list[JobId] = []
    while (room := batch - len(ended)) > 0:
        seen, *rows = await _look(db, room)
        ended += [_expired(row) for row in rows]
        children += [row["job_id"] for row in rows if row["parent_id"] is not None]
        # Rows that were only cleared away, or two of one job, took places of the batch: look on while that helps.
        if seen["looked"] < room or not seen["cleared"]:
            break
    if ended:
        await notify(db, Wake.FINISHED)
    await tell_parents(db, children)
    return tuple(sorted(ended, key=lambda one: one.job_id))


async def _look(db: Database, room: int) -> list[Row]:
    return await db.run(lambda conn: conn.fetch(db.in_schema(_EXPIRE), room))


def _expired(row: Row) -> Expired:
    return Expired(
        job_id=JobId(plain(row["job_id"])),
        name=row["name"] or "",
        queue=row["queue"],
        reason=DeadReason(row["reason"]),
    )
