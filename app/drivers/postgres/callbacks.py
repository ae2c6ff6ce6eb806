"""Who is told of a job's end: a delivery, written by the statement that ends the job.

A fragment of SQL for statements that have a CTE `ended(job_id, calls_back, state, reason, attempt)` of jobs whose token
they moved to `finished`, `state` by its code there. Of jobs that nobody asked about it reads and writes nothing. A
delivery is carried by a job that is made once the end is committed: `webhook_carry`.
"""

from __future__ import annotations

TELL_ENDS = """
told as (
  insert into outlast.delivery(
    tenant, webhook, url, subject, run_id, name, queue, ended_as, reason, attempt, traceparent)
  select j.tenant, j.asked->>'to', j.asked->>'url', e.job_id, coalesce(j.run_id, j.id), n.name, j.queue, e.state,
    e.reason, e.attempt, j.traceparent
  from ended e
  cross join lateral (
    select j.*, j.callback::jsonb as asked from outlast.job j where j.id = e.job_id offset 0) j
  cross join lateral (select n.name from outlast.job_name n where n.id = j.name_id offset 0) n
  where e.calls_back and (j.asked->>'on')::int >> e.state & 1 = 1)"""
