"""How a wait ends: its step is recorded, its row goes, and the job, if it is suspended, becomes ready.

A fragment of SQL for statements that have a CTE `over`: wait rows their transaction has locked before, each with its
`ctid`, `value`, `event_seq` and whether it `is_kept` (a call whose child failed: it stays, and no step is recorded). A
statement that locked and moved at once would move by a snapshot from before what it waited for. Suspended rows are
locked in the order of their ids. A run is told of a failed child once: not again while it waits for other things
alone. Used by the verbs that wake runs.
"""

from __future__ import annotations

from ...domain.step import StepKind
from .buckets import TOKEN

KINDS = tuple(StepKind)
KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
CALL = KIND_CODES[StepKind.CALL]

# The step stands under the claim that suspended last; of a job that is not suspended now, under its last claim.
RESOLVE = f"""
tok as materialized (
  select s.job_id, s.claim_no from outlast.suspended s
  where s.job_id = any(array(select o.job_id from over o)) order by s.job_id for update),
woken as (
  delete from outlast.suspended s
  where s.job_id = any(array(select o.job_id from over o where o.awaited or not o.is_kept))
    and (s.job_id = any(array(select t.job_id from tok t))) is true returning s.*),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank & -2, job_id, name_id, attempt, claim_no, crashes, interrupts from woken order by since, job_id),
stp as (
  insert into outlast.step(run_id, name, kind, branch, number, value, claim_no, code_version, started_at, event_seq,
    child_id)
  select coalesce(e.run_id, e.id), o.name, o.kind, o.branch, o.number, o.value, coalesce(k.claim_no, c.claim_no, 0),
    o.code_version, o.began_at, o.event_seq, o.child_id
  from over o
  cross join lateral (
    select j.id, j.run_id, j.seq, j.queue, j.priority from outlast.job j where j.id = o.job_id offset 0) e
  left join tok k on k.job_id = o.job_id
  left join lateral (select t.claim_no from ({TOKEN}) t where k.job_id is null limit 1) c on true
  where not o.is_kept
  order by o.began_at, o.job_id, o.number
  on conflict do nothing),
ended as (
  delete from outlast.wait where ctid = any(array(select o.ctid from over o where not o.is_kept)))"""  # noqa: S608  fragments of our own

# Of a wait `w` of a call: the run has heard, or may hear, that it failed. Nobody waits for it until it is asked for
# again, and what becomes of its child meanwhile changes nothing about a run that has gone on from the failure. Looked
# up one by one: `exists` behind an `or` may be planned as a read of the whole table.
IS_KEPT = """
w.child_id is not null and (not w.awaited
  or (select true from outlast.finished f where f.job_id = w.child_id limit 1) is not null
  or (select true from outlast.job j where j.id = w.child_id limit 1) is null)"""

# Of a wait `w`: it began before a step of which branch, number and end are given; any did where there is no end.
IS_BEFORE = """
({end}::timestamptz is null
  or case when w.branch = {branch}::text then w.number < {number}::int else w.began_at <= {end} end)"""

# Of a wait `w`: how its child stands. Gone is a child that was deleted; one that is live has neither.
CHILD = """
left join lateral (
  select f.state, f.result, f.reason from outlast.finished f where f.job_id = w.child_id offset 0) f on true
left join lateral (select j.id from outlast.job j where j.id = w.child_id offset 0) c on true"""
