"""Where a job's token is: the fragments of SQL that address it in each bucket.

Each stands in a `cross join lateral (…)` beside an envelope `e` (id, seq, queue, priority). A fresh ready token is
found by the envelope's place in the queue, one that came back by its id. Owns no statement and no lock; used by the
verbs that act or read by id.
"""

from __future__ import annotations

from ...domain.job import LANE_NEW
from ...domain.state import State
from ...domain.step import StepKind
from .tables_limits import LIMITED

# Codes of `finished.state`.
DONE = 0
DEAD = 2
CANCELLED = 4

# Kinds of `expiry` rows: never started in time, and the deadline.
NOT_STARTED = 0
DEADLINE = 1

CODE_OF = {State.DONE: DONE, State.DEAD: DEAD, State.CANCELLED: CANCELLED}

# The rank of an envelope's first token: its priority, lane new.
FIRST_RANK = "e.priority * 2 + 1"

# The rank of a token of an envelope `e` that begins anew, with the mark by which `ready` knows those for the gate.
NEW_RANK = f"""e.priority * 2 + {LANE_NEW} + case when e.limit_names is not null
  or (select q.fair from outlast.queue q where q.name = e.queue) then {LIMITED} else 0 end"""  # noqa: S608  our own

READY_CTID = f"""
  select r.ctid from outlast.ready r
  where r.queue = e.queue and r.rank = {FIRST_RANK} and r.seq = e.seq and r.job_id = e.id
  union all
  select r.ctid from outlast.ready r where r.job_id = e.id and r.moved"""  # noqa: S608  fragments of this module

# What a suspended run waits for, in words.
_KINDS = ", ".join(f"'{kind}'" for kind in StepKind)

_COUNTERS = "t.attempt, t.claim_no, t.crashes, t.interrupts"
_READY = f"""
  select 'ready' as state, {_COUNTERS}, null::timestamptz as due_at, null::text as reason, null::int as worker,
    null::timestamptz as started_at, null::timestamptz as finished_at, null::text as result, false as late
  from outlast.ready t"""  # noqa: S608  same

# One row per token; `reason` is why it waits, is held, or ended. Every branch is one probe of an index.
TOKEN = f"""
  {_READY} where t.queue = e.queue and t.rank = {FIRST_RANK} and t.seq = e.seq and t.job_id = e.id
  union all {_READY} where t.job_id = e.id and t.moved
  union all
  select 'ready', {_COUNTERS}, null, t.why, null, null, null, null, false
  from outlast.gate t where t.job_id = e.id
  union all
  select 'delayed', {_COUNTERS}, t.due_at,
    (array['scheduled', 'retry', 'snooze', 'interrupted'])[t.reason + 1], null, null, null, null, false
  from outlast.waiting t where t.job_id = e.id
  union all
  select 'running', {_COUNTERS}, null, null, t.worker, t.claimed_at, null, null, false
  from outlast.running t where t.job_id = e.id
  union all
  select 'suspended', {_COUNTERS}, null, (array[{_KINDS}])[t.reason + 1], null, null, null, null, false
  from outlast.suspended t where t.job_id = e.id
  union all
  select 'held', {_COUNTERS}, null, t.reason, null, null, null, null, false
  from outlast.held t where t.job_id = e.id
  union all
  select case t.state when {DONE} then 'done' when {DEAD} then 'dead' else 'cancelled' end, {_COUNTERS}, null, t.reason,
    t.worker, t.started_at, t.finished_at, t.result, t.late
  from outlast.finished t where t.job_id = e.id"""  # noqa: S608  same
