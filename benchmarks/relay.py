"""Relay figures: a backlog published by passes of one relay, beside one statement that moves the same rows."""

from __future__ import annotations

import time
from typing import Any

from app.outbox.passes import SharedPasses
from app.outbox.relay import RelayOptions

from .bed import Bed, driver_on, raw_on
from .work import NAME, new_jobs

BATCH = RelayOptions().batch

_STAGE = """
insert into outlast.outbox(id, name, queue, priority, tenant, payload, max_attempts, max_crashes)
select id, $1, 'default', 5, 'default', payload, 25, 3 from unnest($2::uuid[], $3::text[]) u(id, payload)"""

# What a pass stores, without looking for keys and sources that may be taken.
_MOVE = """
with t as materialized (
  select * from outlast.outbox where state = 0 order by staged_at limit $1 for update skip locked),
n as materialized (
  select t.*, nextval('outlast.token_seq') as seq from t where (select pg_current_xact_id()) is not null),
s as (
  insert into outlast.source(source_id, job_id, expires_at)
  select id, id, outlast.clock() + interval '90 days' from n order by id on conflict do nothing),
j as (
  insert into outlast.job(id, seq, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, source_id)
  select id, seq, $2, queue, priority, tenant, payload, max_attempts, max_crashes, id from n),
r as (
  insert into outlast.ready(queue, rank, seq, job_id, name_id, moved, since)
  select queue, priority * 2 + 1, seq, id, $2, false, null from n),
d as (delete from outlast.outbox where id = any(array(select id from n)) returning id)
select count(*) from d"""


async def publish(bed: Bed, *, rows: int) -> tuple[float, float]:
    """Give rows a second through the passes of one relay, and through the statement alone."""
    async with bed.fresh("bench_relay") as url:
        async with driver_on(url) as driver, raw_on(url) as raw:
            passes = SharedPasses(driver.outbox)
            await _stage(raw, BATCH)
            await passes.once(BATCH)
            await _stage(raw, rows)
            began = time.perf_counter()
            while (await passes.once(BATCH)).is_full:
                pass
            ours = rows / (time.perf_counter() - began)
        async with raw_on(url) as raw:
            name_id = await raw.fetchval("select id from outlast.job_name where name = $1", NAME)
            await _stage(raw, rows)
            began = time.perf_counter()
            while await raw.fetchval(_MOVE, BATCH, name_id):
                pass
            return ours, rows / (time.perf_counter() - began)


async def _stage(raw: Any, rows: int) -> None:
    jobs = new_jobs(rows)
    await raw.execute(_STAGE, NAME, [job.id for job in jobs], [job.payload for job in jobs])
    await raw.execute("vacuum analyze outlast.outbox")
