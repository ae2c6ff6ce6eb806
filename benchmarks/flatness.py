"""Does speed stay when rows pile up, dead behind a pinned snapshot or alive beside? And what do payloads cost?

Each pair of figures comes from one database, first without what piles up and then with it.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from app.domain.outcome import Completed, Settlement
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import ClaimRequest, QueueShare

from .bed import Bed, driver_on, raw_on, wal_position
from .drain import bench_worker, drained
from .work import NAME, new_jobs

_BATCH = 100
# Of a later priority than what is measured. Ids of both in their order, as version 7 has them.
_READY = """
with b as materialized (
  select setval('outlast.token_seq', nextval('outlast.token_seq') + $1::bigint) - $1::bigint as seq, n.id as name_id
  from outlast.job_name n where n.name = $2),
j as (
  insert into outlast.job(id, seq, name_id, queue, priority, tenant, payload, max_attempts, max_crashes)
  select lpad(to_hex(b.seq + i), 32, '0')::uuid, b.seq + i, b.name_id, 'default', 9, 'default', '{"number": 1}', 3, 3
  from b cross join generate_series(1, $1) i returning id, seq, name_id)
insert into outlast.ready(queue, rank, seq, job_id, name_id, since, moved)
select 'default', 19, seq, id, name_id, null, false from j"""
_FINISHED = """
insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts)
select ('01' || lpad(to_hex(i), 30, '0'))::uuid, 0, 1, 1, 0, 0 from generate_series(1, $1) i"""


async def behind_a_pinned_snapshot(bed: Bed, *, jobs: int, windows: int = 10) -> tuple[float, float]:
    """Churn jobs while a reader keeps its snapshot; gives jobs a second in the first window and in the last."""
    async with bed.fresh("bench_pinned") as url, driver_on(url) as driver, raw_on(url) as reader:
        worker = await driver.register_worker(bench_worker())
        for _ in range(3):  # every statement is prepared before the first window
            await _churn(driver, worker, 1_000)
        async with reader.transaction(isolation="repeatable_read", readonly=True):
            await reader.fetchval("select count(*) from outlast.job")
            rates = []
            for _ in range(windows):
                began = time.perf_counter()
                for _ in range(jobs // windows // 1_000):
                    await _churn(driver, worker, 1_000)
                rates.append(jobs / windows / (time.perf_counter() - began))
        return rates[0], rates[-1]


async def beside_a_million(bed: Bed, *, jobs: int, rows: int, concurrency: int, turns: int = 3) -> tuple[float, float]:
    """Drain a store, then again beside `rows` ready of a later priority and `rows` done; medians of some turns."""
    async with bed.fresh("bench_million") as url, raw_on(url) as raw:

        async def turn() -> float:
            return (await drained(url, raw, jobs=jobs, processes=1, concurrency=concurrency))[0]

        empty = [await turn() for _ in range(turns)]
        await raw.execute(_READY, rows, NAME)
        await raw.execute(_FINISHED, rows)
        await raw.execute("vacuum analyze")
        await raw.execute("checkpoint")
        full = [await turn() for _ in range(turns)]
        return statistics.median(empty), statistics.median(full)


async def wal_of(bed: Bed, *, jobs: int, padding: int = 0) -> tuple[float, float]:
    """Give the bytes of WAL of a job's enqueue and of its run, with a payload of 20 bytes and `padding` more."""
    async with bed.fresh("bench_wal") as url, driver_on(url) as driver, raw_on(url) as raw:
        worker = await driver.register_worker(bench_worker())
        await _churn(driver, worker, jobs, padding=padding)  # pages that were never written are written whole
        before = await wal_position(raw)
        await driver.enqueue_many(new_jobs(jobs, padding=padding))
        enqueued = await wal_position(raw)
        await _run(driver, worker)
        return (enqueued - before) / jobs, (await wal_position(raw) - enqueued) / jobs


async def _churn(driver: PostgresDriver, worker: Any, jobs: int, *, padding: int = 0) -> None:
    await driver.enqueue_many(new_jobs(jobs, padding=padding))
    await _run(driver, worker)


async def _run(driver: PostgresDriver, worker: Any) -> None:
    """Run what is ready to done as a worker does, each batch settled as the next is claimed."""
    share = QueueShare(queue="default", room=_BATCH)
    asked = ClaimRequest(worker_id=worker, shares=(share,), names=frozenset({NAME}), room=_BATCH)
    claimed = await driver.claim(asked)
    while claimed:
        done = [Settlement(token=one.token, outcome=Completed()) for one in claimed]
        _, claimed = await driver.settle_and_claim(done, asked)
