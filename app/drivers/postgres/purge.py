"""`purge`: old terminal jobs are deleted in batches, with their ledger, their runs and time limits.

Passes over what a retry holds and waits for nobody; claims and settles never touch these rows. Keys and sources outlive
their jobs by windows of their own. Walks the primary key from the oldest id: ids are UUIDv7, so jobs enqueued after the
cut cannot have ended before it and are not looked at.
"""

from __future__ import annotations

from ..protocol import PurgeQuery
from .buckets import CODE_OF
from .database import Database

# The minute leaves room for the clock of the process that minted the id; a clock further ahead only delays the purge.
_PURGE = """
with cut as materialized (
  select at, (extract(epoch from at + interval '1 minute') * 1000)::bigint as ms
  from (select outlast.clock() - $2::interval as at) c),
d as materialized (
  select f.job_id from outlast.finished f
  where f.job_id < (select (lpad(to_hex(ms), 12, '0') || repeat('0', 20))::uuid from cut)
    and f.state = $1 and f.finished_at < (select at from cut)
  order by f.job_id limit $3 for update skip locked),
gone as (delete from outlast.finished where job_id = any(array(select job_id from d)) returning job_id),
a as (delete from outlast.attempt where job_id = any(array(select job_id from gone))),
x as (delete from outlast.expiry where job_id = any(array(select job_id from gone))),
w as (delete from outlast.wait where job_id = any(array(select job_id from gone))),
l as (delete from outlast.run_line where job_id = any(array(select job_id from gone))),
p as (delete from outlast.progress where job_id = any(array(select job_id from gone))),
h as (delete from outlast.handed where job_id = any(array(select job_id from gone))),
j as (
  delete from outlast.job where id = any(array(select job_id from gone)) returning coalesce(run_id, id) as run_id),
s as (delete from outlast.step where run_id = any(array(select run_id from j)))
select count(*) from gone"""

# Keys of ended jobs whose window is over, whether their job is still there or not. Not in the order of hashes, as it
# waits for nobody.
_PURGE_KEYS = """
delete from outlast.live_key where hash = any(array(
  select hash from outlast.live_key where ended and expires_at <= outlast.clock()
  order by expires_at limit $1 for update skip locked))"""

# Kept a day longer than a row of the outbox may be published again: its age is judged by another database's clock.
_PURGE_SOURCES = """
delete from outlast.source where source_id = any(array(
  select source_id from outlast.source where expires_at < outlast.clock() - interval '1 day'
  order by expires_at limit $1 for update skip locked))"""


async def purge(db: Database, query: PurgeQuery) -> int:
    """Delete one batch of jobs that have been in `query.state` for longer than `query.older_than`.

    Gives the number deleted; less than the batch means that nothing older is left. Repeating it is safe.
    """
    code = CODE_OF[query.state]
    deleted: int = await db.run(lambda conn: conn.fetchval(db.in_schema(_PURGE), code, query.older_than, query.batch))
    await db.run(lambda conn: conn.execute(db.in_schema(_PURGE_KEYS), query.batch))
    await db.run(lambda conn: conn.execute(db.in_schema(_PURGE_SOURCES), query.batch))
    return deleted
