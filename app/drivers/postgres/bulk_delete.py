"""The delete of a bulk operation: a batch of jobs that have ended or are held goes, with every row about them alone.

As `delete` takes one, and waiting for no token. Left are jobs that some run waits for, which is told before they go,
and held ones that call others: they go one by one.
"""

from __future__ import annotations

from ...domain.state import State
from .buckets import DONE as ENDED_DONE
from .bulk_acts import NONE_REFUSED, acting
from .keys import END_KEYS

_PART = f"""
one as materialized (
  select f.* from fit f
  where (select true from outlast.wait w where w.child_id = f.id limit 1) is null
    and (f.state <> '{State.HELD}'
      or (select true from outlast.wait w where w.job_id = f.id and w.child_id is not null limit 1) is null)),
hld_rows as materialized (
  select t.job_id from outlast.held t
  where t.job_id = any(array(select id from one where state = '{State.HELD}')) for update skip locked),
fin_rows as materialized (
  select t.job_id from outlast.finished t
  where t.job_id = any(array(select id from one where state <> '{State.HELD}'))
    and t.state >= {ENDED_DONE} order by t.job_id for update skip locked),
hld as (delete from outlast.held where job_id = any(array(select job_id from hld_rows)) returning job_id),
fin as (delete from outlast.finished where job_id = any(array(select job_id from fin_rows)) returning job_id),
gone as materialized (select job_id from hld union all select job_id from fin),
a as (delete from outlast.attempt where job_id = any(array(select job_id from gone))),
x as (delete from outlast.expiry where job_id = any(array(select job_id from gone))),
w as (delete from outlast.wait where job_id = any(array(select job_id from gone))),
l as (delete from outlast.run_line where job_id = any(array(select job_id from gone))),
p as (delete from outlast.progress where job_id = any(array(select job_id from gone))),
n as (delete from outlast.handed where job_id = any(array(select job_id from gone))),
j as (
  delete from outlast.job where id = any(array(select job_id from gone)) returning coalesce(run_id, id) as run_id),
s as (delete from outlast.step where run_id = any(array(select run_id from j))),
ended as materialized (select h.job_id, e.key_hash from hld h join one e on e.id = h.job_id),
{END_KEYS},
did as materialized (select job_id, null::text as detail from gone),
{NONE_REFUSED}
"""  # noqa: S608  fragments of our own

DELETE = acting(_PART)

# Of a batch: jobs that somebody waits for, and held ones that wait for others.
WAITED_FOR = """
select i.id as job_id from unnest($1::uuid[]) i(id)
where (select true from outlast.wait w where w.child_id = i.id limit 1)
  or (select true from outlast.held h where h.job_id = i.id)
    and (select true from outlast.wait w where w.job_id = i.id and w.child_id is not null limit 1)
order by i.id"""
