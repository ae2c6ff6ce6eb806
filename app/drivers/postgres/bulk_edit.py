"""Run now, reschedule and set priority of a bulk operation: a batch of waiting tokens gets another place.

As `run_now` and `patch` take one, and waiting for no token. Among themselves jobs keep their order. Sleeps are only
made due; whoever looks next ends them.
"""

from __future__ import annotations

from ...domain.edit import RunNowVerdict
from ...domain.state import State
from ...domain.step import StepKind
from .buckets import FIRST_RANK
from .bulk_acts import NONE_REFUSED, SLEEPS, UNFIT, acting
from .resolve import KIND_CODES
from .tables_limits import LIMITED

_CARRIED = "job_id, name_id, attempt, claim_no, crashes, interrupts"
_RANK = f"$5::smallint * 2 + (t.rank & {LIMITED | 1})"

_ROWS = f"""
rdy_rows as materialized (
  select x.* from fit e cross join lateral (
    select t.job_id, t.ctid from outlast.ready t
    where t.queue = e.queue and t.rank = {FIRST_RANK} and t.seq = e.seq and t.job_id = e.id
      and e.state = '{State.READY}' for update skip locked) x
  union all
  select x.* from fit e cross join lateral (
    select t.job_id, t.ctid from outlast.ready t where t.job_id = e.id and t.moved
      and e.state = '{State.READY}' for update skip locked) x),
gat_rows as materialized (
  select t.job_id from outlast.gate t
  where t.job_id = any(array(select id from fit where state = '{State.READY}')) for update skip locked),
wai_rows as materialized (
  select t.job_id from outlast.waiting t
  where t.job_id = any(array(select id from fit where state = '{State.DELAYED}')) for update skip locked)"""  # noqa: S608  words of our own

# A run that sleeps is taken with all its sleeps, or comes again; one that no longer does is no longer meant.
_RUN_NOW_PART = f"""
slp as materialized (
  select w.job_id, w.name from outlast.wait w
  where w.job_id = any(array(select id from fit where state = '{State.SUSPENDED}'))
    and w.kind = {KIND_CODES[StepKind.SLEEP]}
  order by w.job_id, w.name for update skip locked),
whole as materialized (
  select h.job_id from (select job_id, count(*) as n from slp group by job_id) h
  where h.n = (
    select count(*) from outlast.wait w where w.job_id = h.job_id and w.kind = {KIND_CODES[StepKind.SLEEP]})),
sus_rows as materialized (
  select s.job_id from outlast.suspended s where s.job_id = any(array(select job_id from whole))
  order by s.job_id for update skip locked),
d as (
  update outlast.wait w set due_at = least(w.due_at, outlast.clock())
  from slp s where w.job_id = s.job_id and w.name = s.name and s.job_id = any(array(select job_id from sus_rows))),
{_ROWS.strip()},
t as (delete from outlast.waiting where job_id = any(array(select job_id from wai_rows)) returning *),
r as (
  insert into outlast.ready(queue, rank, {_CARRIED}) select queue, rank, {_CARRIED} from t order by job_id),
o as (
  update outlast.job set run_at = outlast.clock()
  where id = any(array(select job_id from t)) and run_at > outlast.clock()),
did as materialized (
  select job_id, '{RunNowVerdict.MADE_READY}' as detail from t
  union all select job_id, '{RunNowVerdict.SLEEP_ENDED}' from sus_rows),
refused as materialized (
  select f.id as job_id, 'JOB_STATE_CONFLICT' as code, f.state as detail from fit f
  where f.state = '{State.SUSPENDED}' and {SLEEPS.format(job_id="f.id")} is null)
"""  # noqa: S608  fragments of our own

_RESCHEDULE_PART = f"""
{_ROWS.strip()},
to_wait as (
  delete from outlast.ready
  where ctid = any(array(select ctid from rdy_rows)) and $5::timestamptz > outlast.clock()
  returning queue, rank, {_CARRIED}),
gat_to_wait as (
  delete from outlast.gate
  where job_id = any(array(select job_id from gat_rows)) and $5::timestamptz > outlast.clock()
  returning queue, rank, {_CARRIED}),
to_run as (
  delete from outlast.waiting
  where job_id = any(array(select job_id from wai_rows)) and $5::timestamptz <= outlast.clock() returning *),
later as (
  update outlast.waiting set due_at = $5::timestamptz
  where job_id = any(array(select job_id from wai_rows)) and $5::timestamptz > outlast.clock() returning job_id),
wai as (
  insert into outlast.waiting(queue, rank, due_at, {_CARRIED}, reason)
  select queue, rank, $5::timestamptz, {_CARRIED}, 0
  from (select * from to_wait union all select * from gat_to_wait) t returning job_id),
rdy as (
  insert into outlast.ready(queue, rank, {_CARRIED}) select queue, rank, {_CARRIED} from to_run order by job_id),
did as materialized (
  select job_id, null::text as detail from later union all select job_id, null from wai
  union all select job_id, null from to_run
  union all select job_id, null from rdy_rows where $5::timestamptz <= outlast.clock()
  union all select job_id, null from gat_rows where $5::timestamptz <= outlast.clock()),
o as (update outlast.job set run_at = $5::timestamptz where id = any(array(select job_id from did))),
{NONE_REFUSED}
"""  # noqa: S608  same

# The locks on the rows have given the transaction its id before the numbers are drawn. A ready job is behind those that
# are of its new priority already: a claim does not look below numbers it is done with.
_PRIORITY_PART = f"""
sus_rows as materialized (
  select t.job_id from outlast.suspended t
  where t.job_id = any(array(select id from fit where state = '{State.SUSPENDED}'))
  order by t.job_id for update skip locked),
{_ROWS.strip()},
hld_rows as materialized (
  select t.job_id from outlast.held t
  where t.job_id = any(array(select id from fit where state = '{State.HELD}')) for update skip locked),
n as materialized (
  select o.ctid, nextval('outlast.token_seq') as seq from (
    select t.ctid from outlast.ready t
    where t.ctid = any(array(select ctid from rdy_rows)) and t.rank <> {_RANK} order by t.rank, t.seq) o),
rdy as (
  update outlast.ready t set rank = {_RANK}, seq = n.seq, moved = true,
    since = coalesce(t.since, (select j.created_at from outlast.job j where j.id = t.job_id))
  from n where t.ctid = n.ctid),
gat_n as materialized (
  select o.job_id, nextval('outlast.token_seq') as seq from (
    select t.job_id from outlast.gate t
    where t.job_id = any(array(select job_id from gat_rows)) and t.rank <> {_RANK} order by t.rank, t.seq) o),
gat as (update outlast.gate t set rank = {_RANK}, seq = n.seq from gat_n n where t.job_id = n.job_id),
wai as (update outlast.waiting t set rank = {_RANK} where t.job_id = any(array(select job_id from wai_rows))),
sus as (update outlast.suspended t set rank = {_RANK} where t.job_id = any(array(select job_id from sus_rows))),
hld as (update outlast.held t set rank = {_RANK} where t.job_id = any(array(select job_id from hld_rows))),
did as materialized (
  select job_id, null::text as detail from rdy_rows union all select job_id, null from gat_rows
  union all select job_id, null from wai_rows union all select job_id, null from sus_rows
  union all select job_id, null from hld_rows),
o as (
  update outlast.job set priority = $5::smallint
  where id = any(array(select job_id from did)) and priority <> $5::smallint),
{NONE_REFUSED}
"""  # noqa: S608  same

RUN_NOW = acting(_RUN_NOW_PART, refused=UNFIT)
RESCHEDULE = acting(_RESCHEDULE_PART)
SET_PRIORITY = acting(_PRIORITY_PART)
