"""Ended jobs are deleted in steps, with their ledger, their runs and time limits.

A step looks at a batch of ended jobs in the order of their ids and deletes those that are over, passing over what a
retry holds; it waits for nobody, and claims and settles never touch these rows. Keys and sources outlive their jobs by
windows of their own. Ids are UUIDv7: jobs enqueued after the cut cannot have ended before it and are not looked at.
"""

from __future__ import annotations

from datetime import timedelta

from ...domain.job import JobId
from ...domain.retention import Chore, EndedRule, Purged, Tidied
from ...domain.state import State
from .buckets import CODE_OF, DEAD
from .database import Database
from .purge_mark import MARK, MOVE, take_step
from .rows import plain

# From `after` in a CTE `m`. A child stays while a job that has not ended waits for it. The minute leaves room for the
# clock of the process that minted the id; a clock further ahead only delays the purge. What waits for an event is
# locked in the order of ids: so does who emits it.
_LOOK = f"""
cut as materialized (
  select at, (lpad(to_hex((extract(epoch from at - $5::interval + interval '1 minute') * 1000)::bigint), 12, '0')
    || repeat('0', 20))::uuid as upto
  from (select outlast.clock() as at) c),
seen as materialized (
  select f.job_id, f.state, f.finished_at, f.worker from outlast.finished f
  where f.job_id > (select coalesce(after::uuid, '00000000-0000-0000-0000-000000000000') from m)
    and f.job_id < (select upto from cut)
  order by f.job_id limit $4),
fit as materialized (
  select s.job_id from seen s
  left join lateral (
    select n.name, e.tenant from outlast.job e left join outlast.job_name n on n.id = e.name_id
    where e.id = s.job_id and $10::boolean offset 0) e on true
  left join unnest($8::text[], $9::interval[]) own(name, kept) on own.name = e.name
  where s.state = any($11::smallint[])
    and s.finished_at < (select at from cut)
      - coalesce(own.kept, case s.state when {DEAD} then $7::interval else $6::interval end)
    and ($12::text is null or e.name = $12) and ($13::text is null or e.tenant = $13)
    and not exists (
      select from outlast.wait w where w.child_id = s.job_id
        and not exists (select from outlast.finished p where p.job_id = w.job_id)))"""  # noqa: S608  a code of our own

_DELETE = """
d as materialized (
  select f.job_id from outlast.finished f where f.job_id = any(array(select job_id from fit))
  order by f.job_id for update skip locked),
gone as (delete from outlast.finished where job_id = any(array(select job_id from d)) returning job_id),
a as (delete from outlast.attempt where job_id = any(array(select job_id from gone))),
x as (delete from outlast.expiry where job_id = any(array(select job_id from gone))),
lw as materialized (
  select w.ctid from outlast.wait w where w.job_id = any(array(select job_id from gone))
  order by (w.job_id, w.name) for update),
w as (delete from outlast.wait where ctid = any(array(select ctid from lw))),
l as (delete from outlast.run_line where job_id = any(array(select job_id from gone))),
p as (delete from outlast.progress where job_id = any(array(select job_id from gone))),
h as (delete from outlast.handed where job_id = any(array(select job_id from gone))),
j as (
  delete from outlast.job where id = any(array(select job_id from gone)) returning coalesce(run_id, id) as run_id),
s as (delete from outlast.step where run_id = any(array(select run_id from j)))"""

_END = """
o as materialized (
  select (select count(*) from seen) as looked, (select count(*) from {deleted}) as deleted,
    (select job_id from seen order by job_id desc limit 1) as last
  from m)"""

_GIVEN = "with m as materialized (select $1::text as after where ($2::boolean, $3::interval) is not null)"

_COUNT = f"{_GIVEN},{_LOOK},{_END.replace('{deleted}', 'fit')}\nselect * from o"
_PURGE = f"{_GIVEN},{_LOOK},{_DELETE},{_END.replace('{deleted}', 'gone')}\nselect * from o"

# What stays names workers whose rows must stay as well.
_TIDY = f"""
with {MARK.strip()},{_LOOK},{_DELETE},
o as materialized (
  select (select count(*) from gone) as deleted, (select count(*) from seen) < $4 as is_over,
    (select job_id::text from seen order by job_id desc limit 1) as last,
    (select min(s.worker) from seen s where s.job_id not in (select job_id from gone)) as low
  from m),{MOVE}"""  # noqa: S608  same


async def purge_ended(db: Database, rule: EndedRule, *, after: JobId | None, batch: int, dry: bool) -> Purged:
    """Take one step over ended jobs, or only count what it would delete."""
    sql, place = db.in_schema(_COUNT if dry else _PURGE), None if after is None else str(after)
    binds = (place, False, timedelta(), batch, *_binds(rule))
    row = await db.run(lambda conn: conn.fetchrow(sql, *binds))
    if row is None:
        raise AssertionError("a select without a table gives one row")
    is_over = row["looked"] < batch
    return Purged(row["looked"], row["deleted"], None if is_over else JobId(plain(row["last"])))


async def tidy_ended(db: Database, rule: EndedRule, *, batch: int, rest: timedelta, now: bool) -> Tidied:
    """Take one step of the round over ended jobs, and keep its place."""
    sql, binds = db.in_schema(_TIDY), (now, rest, batch, *_binds(rule))
    return await db.run(lambda conn: take_step(db, conn, sql, Chore.JOBS.value, *binds))


def _binds(rule: EndedRule) -> tuple[object, ...]:
    names = sorted(rule.by_name)
    needs_envelope = bool(names) or rule.name is not None or rule.tenant is not None
    states = sorted(CODE_OF[state] for state in State if state in rule.states)
    return (
        *(rule.shortest, rule.done, rule.dead, names, [rule.by_name[name] for name in names]),
        *(needs_envelope, states, rule.name, rule.tenant),
    )
