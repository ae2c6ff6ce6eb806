"""The cancel of a bulk operation: a batch of tokens goes to `finished` in one statement, as `cancel` takes one.

In the order of locks of every verb, and waiting for no token. Jobs that call others are left: they go with their
children, one by one.
"""

from __future__ import annotations

from ...domain.ledger import CAUSE_OPERATOR
from ...domain.outcome import CancelVerdict, OutcomeKind
from ...domain.state import State
from .buckets import CANCELLED, FIRST_RANK
from .bulk_acts import NONE_REFUSED, OF_BATCH, acting
from .callbacks import TELL_ENDS
from .keys import END_KEYS
from .ledger import TRIM_LEDGER

_COUNTERS = "job_id, attempt, claim_no, crashes, interrupts"
_CALLS_NOBODY = """(
  select true from outlast.wait w where w.job_id = f.id and w.child_id is not null limit 1) is null"""

# The rows of tokens of the jobs `one`, in the order of locks of every verb; what somebody holds is passed over. A
# job of which a wait is held by somebody is not taken: whoever ends that wait looks for its token next.
_ROWS = f"""
run_rows as materialized (
  select r.job_id from outlast.running r
  where r.job_id = any(array(select id from one where state = '{State.RUNNING}'))
  order by r.job_id for update skip locked),
wts as materialized (
  select w.ctid, w.job_id from outlast.wait w
  where w.job_id = any(array(select id from one)) and (select count(*) from run_rows) >= 0
  order by w.job_id, w.name for update skip locked),
whole as materialized (
  select f.* from one f left join (select job_id, count(*) as n from wts group by job_id) h on h.job_id = f.id
  where coalesce(h.n, 0) = (select count(*) from outlast.wait w where w.job_id = f.id)),
sus_rows as materialized (
  select s.job_id from outlast.suspended s
  where s.job_id = any(array(select id from whole where state = '{State.SUSPENDED}'))
  order by s.job_id for update skip locked),
rdy_rows as materialized (
  select x.* from whole e cross join lateral (
    select t.job_id, t.ctid from outlast.ready t
    where t.queue = e.queue and t.rank = {FIRST_RANK} and t.seq = e.seq and t.job_id = e.id
      and e.state = '{State.READY}' and (select count(*) from sus_rows) >= 0 for update skip locked) x
  union all
  select x.* from whole e cross join lateral (
    select t.job_id, t.ctid from outlast.ready t where t.job_id = e.id and t.moved
      and e.state = '{State.READY}' and (select count(*) from sus_rows) >= 0 for update skip locked) x),
gat_rows as materialized (
  select t.job_id from outlast.gate t
  where t.job_id = any(array(select id from whole where state = '{State.READY}'))
    and (select count(*) from sus_rows) >= 0 for update skip locked),
wai_rows as materialized (
  select t.job_id from outlast.waiting t
  where t.job_id = any(array(select id from whole where state = '{State.DELAYED}')) for update skip locked),
hld_rows as materialized (
  select t.job_id from outlast.held t
  where t.job_id = any(array(select id from whole where state = '{State.HELD}')) for update skip locked)"""  # noqa: S608  words of our own

_PART = f"""
one as materialized (select f.* from fit f where {_CALLS_NOBODY}),
{_ROWS.strip()},
run as (
  delete from outlast.running
  where job_id = any(array(select r.job_id from run_rows r join whole f on f.id = r.job_id))
  returning {_COUNTERS}, seq, worker, claimed_at),
sus as (
  delete from outlast.suspended where job_id = any(array(select job_id from sus_rows)) returning {_COUNTERS}),
rdy as (delete from outlast.ready where ctid = any(array(select ctid from rdy_rows)) returning {_COUNTERS}),
gat as (delete from outlast.gate where job_id = any(array(select job_id from gat_rows)) returning {_COUNTERS}),
wai as (delete from outlast.waiting where job_id = any(array(select job_id from wai_rows)) returning {_COUNTERS}),
hld as (delete from outlast.held where job_id = any(array(select job_id from hld_rows)) returning {_COUNTERS}),
closed as materialized (
  select job_id, attempt - 1 as attempt, claim_no, crashes, interrupts, seq, worker, claimed_at from run),
gone as materialized (
  select * from closed
  union all select {_COUNTERS}, null, null, null from rdy
  union all select {_COUNTERS}, null, null, null from gat
  union all select {_COUNTERS}, null, null, null from wai
  union all select {_COUNTERS}, null, null, null from sus
  union all select {_COUNTERS}, null, null, null from hld),
dropped as (
  delete from outlast.wait where ctid = any(array(select w.ctid from wts w join gone g on g.job_id = w.job_id))),
fin as (
  insert into outlast.finished({_COUNTERS}, state, seq, worker, started_at, reason)
  select {_COUNTERS}, {CANCELLED}, seq, worker, claimed_at, $5::text from gone),
led as (
  insert into outlast.attempt(job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at)
  select c.job_id, c.claim_no, '{OutcomeKind.CANCELLED}', '{CAUSE_OPERATOR}', false, c.worker, w.host, w.code_version,
    c.claimed_at, outlast.clock()
  from closed c left join outlast.worker w on w.id = c.worker),
ended as materialized (
  select g.job_id, e.key_hash, e.calls_back, {CANCELLED} as state, $5::text as reason, g.attempt
  from gone g join one e on e.id = g.job_id),
{TELL_ENDS},
{TRIM_LEDGER},
{END_KEYS},
did as materialized (
  select job_id, case when worker is not null then '{CancelVerdict.SIGNALLED}'
    when claim_no > 0 then '{CancelVerdict.CANCELLED_WHILE_WAITING}'
    else '{CancelVerdict.CANCELLED_BEFORE_START}' end as detail from gone),
{NONE_REFUSED}
"""  # noqa: S608  fragments of our own

CANCEL = acting(_PART)

# Of a batch: jobs whose run waits for children.
CALLERS = """
select distinct w.job_id from outlast.wait w where w.job_id = any($1::uuid[]) and w.child_id is not null
order by w.job_id"""

# One job with all its waits, or nothing: nobody can move it any more.
HOLD = f"""{OF_BATCH.strip()},
one as materialized (
  select f.* from fit f
  where (select true from outlast.bulk_item i where i.bulk_id = $4 and i.job_id = f.id and i.verdict is null)),
{_ROWS.strip()}
select f.tenant, f.queue, f.name, f.state from whole f where f.id = any(array(
  select job_id from run_rows union all select job_id from sus_rows union all select job_id from rdy_rows
  union all select job_id from gat_rows union all select job_id from wai_rows union all select job_id from hld_rows))"""  # noqa: S608  fragments of our own
