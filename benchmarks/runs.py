"""Run figures: jobs of five steps beside the bare statements for the same writes, and runs that wait and are woken."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from app.domain.job import ClaimToken, JobId, WorkerId
from app.domain.step import MAIN_BRANCH, NewStep, Place, StepKind
from app.drivers.postgres.claim import CLAIM_ONE
from app.drivers.postgres.settle import SETTLE_DONE
from app.drivers.postgres.steps import RECORD, Recording, columns_of

from .bed import Bed, driver_on, raw_on
from .drain import EVER, SPAN, WHOLE, bench_worker, drained, fill, settled, start_worker
from .jobs import STEPS
from .work import NAME

_ASLEEP = "select count(*) from outlast.suspended"
_OVER = "update outlast.wait set due_at = outlast.clock()"


async def by_workers(bed: Bed, *, jobs: int, processes: int, concurrency: int) -> tuple[float, float]:
    """Give five-step runs a second, and WAL bytes a run, of worker processes that find a backlog."""
    async with bed.fresh("bench_runs") as url, raw_on(url) as raw:
        return await drained(url, raw, jobs=jobs, processes=processes, concurrency=concurrency, kind="steps")


async def by_statements(bed: Bed, *, jobs: int, batch: int = 100) -> float:
    """Give the same of claim, five records and settle alone, on one bare connection."""
    async with bed.fresh("bench_runs_raw") as url:
        await fill(url, jobs)
        async with driver_on(url) as driver:
            worker = await driver.register_worker(bench_worker())
        async with raw_on(url) as raw:
            name_id = await raw.fetchval("select id from outlast.job_name where name = $1", NAME)
            while True:
                rows = await raw.fetch(CLAIM_ONE, worker, ["default"], [batch], [name_id], batch, False, *WHOLE)
                if len(rows) == 1:
                    break
                for number in range(STEPS):
                    await raw.fetch(RECORD, *_recorded(rows[1:], worker, number))
                await raw.fetch(SETTLE_DONE, *settled(rows[1:], worker))
            return jobs / float(await raw.fetchval(SPAN, EVER))


def _recorded(rows: list[Any], worker: WorkerId, number: int) -> list[Any]:
    """Give the binds of one step of each claim."""
    step = NewStep(f"step {number}", StepKind.RUN, Place(MAIN_BRANCH, number), str(number))
    return columns_of(
        [Recording(ClaimToken(JobId(row["job_id"]), row["claim_no"], worker, fence=row["seq"]), step) for row in rows]
    )


async def asleep_and_awake(bed: Bed, *, jobs: int, concurrency: int, batch: int = 1_000) -> tuple[float, float]:
    """Give runs a second that one worker process suspends, and that `wake` makes ready once all are due."""
    async with bed.fresh("bench_naps") as url, raw_on(url) as raw, driver_on(url) as driver:
        await fill(url, jobs)
        began = time.perf_counter()
        worker = await start_worker(url, concurrency, "naps")
        while await raw.fetchval(_ASLEEP) < jobs:
            await asyncio.sleep(0.05)
        suspended = jobs / (time.perf_counter() - began)
        worker.terminate()
        await worker.communicate()
        await raw.execute(_OVER)
        began = time.perf_counter()
        while await driver.wake(batch) == batch:
            pass
        return suspended, jobs / (time.perf_counter() - began)
