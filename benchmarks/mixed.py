"""A store as it looks after a week: jobs of fifty types in every state, with tags, keys, tenants, parents and errors.

Made by statements of its own, a million jobs in half a minute. The newest jobs are live, the oldest have ended. Used by
the figures of pages and by the tests that no page does work that grows with the table.
"""

from __future__ import annotations

from typing import Any

# Ids carry the time of the enqueue, as those of version 7 do: the jobs are spread over a week.
_ID = """
(lpad(to_hex((extract(epoch from now() - interval '7 days' + ({i}::float8 / $1) * interval '7 days') * 1000)::bigint),
   12, '0') || '7' || lpad(to_hex({i} % 4096), 3, '0') || '8' || substr(md5({i}::text), 1, 15))::uuid"""
_AT = "now() - interval '7 days' + (i::float8 / $1) * interval '7 days'"

# One job in a thousand is rare.
_JOBS = f"""
insert into outlast.job(id, seq, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, created_at, key,
  key_hash, fp, parent_id, tags)
select {_ID.format(i="i")}, nextval('outlast.token_seq'), case when i % 1000 = 0 then 50 else 1 + i % 49 end,
  'queue-' || i % 10, 5, case when i % 20 = 0 then 'acme' when i % 1000 = 7 then 'rare' else 'default' end,
  '{{"order": 123456789}}', 25, 3, {_AT}, case when i % 5 = 0 then 'order:' || i end,
  case when i % 5 = 0 then md5(i::text)::uuid end, case when i % 5 = 0 then i end,
  case when i % 100 = 1 and i > 1 then {_ID.format(i="(i - i % 1000 + 1)")} end,
  case when i % 1000 = 3 then array['vip', 'eu'] when i % 10 = 3 then array['eu'] end
from generate_series(1, $1::int) i"""
_NAMES = """
insert into outlast.job_name(name)
select case when i = 50 then 'demo.rare' else 'demo.job-' || i end from generate_series(1, 50) i"""

# Of a hundred jobs seventy-four are done, ten dead, three cancelled, seven ready, four delayed, the rest suspended or
# held; and a few hundred run.
_ENDED = """
insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts, seq, worker, started_at,
  finished_at, result, reason)
select id, case when n % 100 < 74 then 0 when n % 100 < 84 then 2 else 4 end, 1, 1, 0, 0, seq, 1 + n % 20,
  created_at + interval '1 second', created_at + interval '1 second' + n % 1000 * interval '7 ms',
  case when n % 100 < 74 then '{"sent": true}' end, case when n % 100 >= 74 then 'attempts_exhausted' end
from (select id, seq, created_at, row_number() over (order by id) as n from outlast.job) j where n % 100 < 87"""
_FAILED = """
insert into outlast.attempt(job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at,
  error_type, error_message, error_code, traceback)
select f.job_id, 1, 'dead_lettered', 'error', true, f.worker, 'host', '1', f.started_at, f.finished_at, 'MailError',
  'no such mailbox', case f.seq % 4 when 0 then 'JOB_TIMEOUT' when 1 then 'MAILBOX' end, repeat('at a line\n', 20)
from outlast.finished f where f.state = 2"""
_LIVE = """
with l as materialized (
  select j.*, row_number() over (order by id) as n from outlast.job j
  where not exists (select from outlast.finished f where f.job_id = j.id)),
r as (
  insert into outlast.ready(queue, rank, seq, job_id, name_id, moved, since)
  select queue, 11, seq, id, name_id, false, null from l where n % 13 < 7),
w as (
  insert into outlast.waiting(job_id, due_at, queue, rank, name_id)
  select id, now() + n % 5000 * interval '1 minute' + interval '1 hour', queue, 11, name_id from l
  where n % 13 between 7 and 10),
s as (
  insert into outlast.suspended(job_id, queue, rank, name_id, since, reason)
  select id, queue, 11, name_id, now(), 1 from l where n % 13 = 11),
u as (
  insert into outlast.running(job_id, seq, worker, queue, rank, name_id, claim_no, attempt)
  select id, seq, 1 + n % 20, queue, 11, name_id, 1, 1 from l where n % 13 = 12 and n % 650 = 12 limit 400)
insert into outlast.held(job_id, queue, rank, name_id, reason)
select id, queue, 11, name_id, 'step load' from l where n % 13 = 12 and n % 650 <> 12"""
_WORKERS = """
insert into outlast.worker(boot_id, host, pid, code_version, queues, concurrency, lease_ms, lease_until)
select gen_random_uuid(), 'host-' || i, i, '1', array['default'], 20, 86400000, now() + interval '1 day'
from generate_series(1, 20) i"""

# Every job type in every stretch of all lengths.
_FLOW = """
insert into outlast.flow(tier, at, name, queue, counts, waits, runs)
select t.tier, to_timestamp(floor(extract(epoch from now()) / t.tier - s) * t.tier), n.name, 'queue-1',
  array[900, 9, 3, 1, 0, 0], array_fill(50, array[16]), array_fill(50, array[17])
from (values (60, 119), (900, 103), (3600, 191)) t(tier, upto)
cross join generate_series(0, t.upto) s cross join outlast.job_name n"""


async def fill(connection: Any, jobs: int) -> None:
    """Fill an empty store. No worker may run on it: what its rows hold nobody has claimed."""
    for sql in (_NAMES, _WORKERS):
        await connection.execute(sql)
    await connection.execute(_JOBS, jobs)
    for sql in (_ENDED, _FAILED, _LIVE, _FLOW):
        await connection.execute(sql)
    await connection.execute("vacuum (analyze)")
