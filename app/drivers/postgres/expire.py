"""`expire`: jobs that wait past their `max_queue_time` or `deadline` become dead letters.

Owns the `expiry` rows of jobs that have such a limit (kind 0: never started in time, kind 1: deadline). A running job
is its worker's to stop; its deadline row is left for later without taking a place in the batch. Rows whose job has
ended or started meanwhile are cleared away. Called by any worker.
"""

from __future__ import annotations

from ...domain.state import DeadReason
from ..protocol import Wake
from .buckets import DEAD, FIRST_RANK, TOKEN
from .database import Database
from .keys import END_KEYS
from .notify import notify

NOT_STARTED = 0
DEADLINE = 1

_COUNTERS = "job_id, attempt, claim_no, crashes, interrupts"
# A token is taken if its deadline has passed, or if it has never been claimed (then its queue time has).
_FITS = "(e.deadline_at is not null or t.claim_no = 0)"

_EXPIRE = f"""
with due as materialized (
  select x.job_id, x.kind, x.at from outlast.expiry x
  where x.at <= outlast.clock() and (
    x.kind = {NOT_STARTED} or not exists (select from outlast.running r where r.job_id = x.job_id))
  order by x.at limit $1 for update of x skip locked),
e as materialized (
  select d.job_id as id, d.start_by, d.deadline_at, j.seq, j.queue, j.priority, j.key_hash
  from (select job_id, min(at) filter (where kind = {NOT_STARTED}) as start_by,
          min(at) filter (where kind = {DEADLINE}) as deadline_at
        from due group by job_id) d
  cross join lateral (
    select j.seq, j.queue, j.priority, j.key_hash from outlast.job j where j.id = d.job_id offset 0) j),
rdy_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.ready t
    where t.queue = e.queue and t.rank = {FIRST_RANK} and t.seq = e.seq and t.job_id = e.id and {_FITS}
    for update skip locked) x
  union all
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.ready t where t.job_id = e.id and t.moved and {_FITS} for update skip locked) x),
wai_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.waiting t where t.job_id = e.id and {_FITS} for update skip locked) x),
hld_rows as materialized (
  select x.ctid from e cross join lateral (
    select t.ctid from outlast.held t where t.job_id = e.id and e.deadline_at is not null for update skip locked) x),
rdy as (delete from outlast.ready where ctid = any(array(select ctid from rdy_rows)) returning {_COUNTERS}),
wai as (delete from outlast.waiting where ctid = any(array(select ctid from wai_rows)) returning {_COUNTERS}),
hld as (delete from outlast.held where ctid = any(array(select ctid from hld_rows)) returning {_COUNTERS}),
gone as materialized (select * from rdy union all select * from wai union all select * from hld),
fin as (
  insert into outlast.finished({_COUNTERS}, state, reason)
  select g.job_id, g.attempt, g.claim_no, g.crashes, g.interrupts, {DEAD},
    case when g.claim_no = 0 and (e.deadline_at <= e.start_by) is not true and e.start_by is not null
      then '{DeadReason.EXPIRED}' else '{DeadReason.DEADLINE}' end
  from gone g join e on e.id = g.job_id),
ended as materialized (select g.job_id, e.key_hash from gone g join e on e.id = g.job_id),
{END_KEYS},
moot as materialized (
  select d.job_id, d.kind from due d
  left join lateral (
    select j.id, j.seq, j.queue, j.priority from outlast.job j where j.id = d.job_id offset 0) e on true
  left join lateral ({TOKEN}) t on true
  where d.job_id = any(array(select job_id from gone)) or e.id is null or t.finished_at is not null
    or (d.kind = {NOT_STARTED} and t.claim_no > 0)),
cleared as (delete from outlast.expiry x using moot m where x.job_id = m.job_id and x.kind = m.kind)
select count(*) from gone"""  # noqa: S608  fragments of our own


async def expire(db: Database, batch: int = 1000) -> int:
    """End up to `batch` waiting jobs whose time limit has passed; gives the number ended.

    A job that somebody else is moving at this moment is left for the next call.
    """
    ended: int = await db.run(lambda conn: conn.fetchval(db.in_schema(_EXPIRE), batch))
    if ended:
        await notify(db, Wake.FINISHED)
    return ended
