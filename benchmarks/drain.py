"""Drain figures: a backlog run to done by worker processes, beside the two statements alone in a loop."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from app.domain.job import ClaimToken, JobId, WorkerId
from app.domain.outcome import Completed, Settlement
from app.domain.snapshot import NewWorker
from app.drivers.postgres.claim import CLAIM_ONE
from app.drivers.postgres.settle import SETTLE_DONE, as_sent

from .bed import Bed, driver_on, raw_on, wal_position
from .work import NAME, new_jobs

# A claim without low-water marks looks at the whole of its queue.
WHOLE = (["default"], [-32768], [0], [32767])

# What piles up beside the measured jobs has a later priority, or no worker.
SPAN = """
select extract(epoch from max(finished_at) - min(started_at))::float from outlast.finished f
where finished_at >= $1 and exists (select from outlast.job j where j.id = f.job_id and j.priority = 5)"""
EVER = datetime(1970, 1, 1, tzinfo=UTC)
_BUSY = """
select exists (select from outlast.ready where queue = 'default' and rank < 18)
  or exists (select from outlast.running where rank < 18)"""


async def fill(url: str, jobs: int, *, padding: int = 0) -> None:
    """Put a backlog into a database."""
    async with driver_on(url) as driver:
        work = new_jobs(jobs, padding=padding)
        for start in range(0, jobs, 10_000):
            await driver.enqueue_many(work[start : start + 10_000])


async def by_workers(bed: Bed, *, jobs: int, processes: int, concurrency: int) -> tuple[float, float]:
    """Give jobs a second, and WAL bytes a job, of worker processes that find a backlog."""
    async with bed.fresh("bench_drain") as url, raw_on(url) as raw:
        return await drained(url, raw, jobs=jobs, processes=processes, concurrency=concurrency)


async def drained(
    url: str, raw: Any, *, jobs: int, processes: int, concurrency: int, kind: str = "noop"
) -> tuple[float, float]:
    """Give the same in a database that may hold other things."""
    await fill(url, jobs)
    await raw.execute("insert into outlast.queue(name, paused_at) values ('default', outlast.clock())")
    workers = [await start_worker(url, concurrency, kind) for _ in range(processes)]
    before, began = await wal_position(raw), await raw.fetchval("select outlast.clock()")
    await raw.execute("delete from outlast.queue")
    await raw.execute("select pg_notify('outlast_ready', '')")
    while await raw.fetchval(_BUSY):
        await asyncio.sleep(0.5)  # the end is read off the rows: asking more often only costs
    wal = (await wal_position(raw) - before) / jobs
    for worker in workers:
        worker.terminate()
    await asyncio.gather(*(worker.communicate() for worker in workers))
    return jobs / float(await raw.fetchval(SPAN, began)), wal


async def by_statements(bed: Bed, *, jobs: int, batch: int = 100) -> float:
    """Give jobs a second of claim and settle alone, on one bare connection."""
    async with bed.fresh("bench_raw") as url:
        await fill(url, jobs)
        async with driver_on(url) as driver:
            worker = await driver.register_worker(bench_worker())
        async with raw_on(url) as raw:
            name_id = await raw.fetchval("select id from outlast.job_name where name = $1", NAME)
            while True:
                rows = await raw.fetch(CLAIM_ONE, worker, ["default"], [batch], [name_id], batch, False, *WHOLE)
                if len(rows) == 1:
                    break
                await raw.fetch(SETTLE_DONE, *settled(rows[1:], worker))
            return jobs / float(await raw.fetchval(SPAN, EVER))


def settled(rows: list[Any], worker: WorkerId) -> list[Any]:
    tokens = (
        ClaimToken(job_id=JobId(row["job_id"]), claim_no=row["claim_no"], worker_id=worker, fence=row["seq"])
        for row in rows
    )
    settlements = [Settlement(token, Completed(), is_keyed=False) for token in tokens]
    return as_sent(sorted(settlements, key=lambda settlement: settlement.token.fence)).columns


def bench_worker() -> NewWorker:
    return NewWorker(
        host="bench",
        pid=1,
        code_version="bench",
        queues=("default",),
        concurrency=100,
        lease_ms=600_000,
        boot_id=uuid4(),
    )


async def start_worker(url: str, concurrency: int, *options: str) -> asyncio.subprocess.Process:
    """Start a worker process and wait until it works."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.work", url, str(concurrency), *options, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    await worker.stdout.readline()
    return worker
