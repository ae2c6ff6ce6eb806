"""Fairness figures: how long the jobs of one tenant wait while another has a hundred thousand of them ready."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

from app.domain.queue import QueueChange

from .bed import Bed, driver_on, raw_on
from .drain import start_worker
from .work import new_jobs

_WAITS = """
select extract(epoch from f.started_at - j.created_at)::float from outlast.finished f
join outlast.job j on j.id = f.job_id where j.tenant = 'other'"""
_BUSY_DONE = "select count(*) from outlast.finished f join outlast.job j on j.id = f.job_id where j.tenant = 'busy'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds from enqueue to claim, and how many jobs a second of the other tenant were done meanwhile."""

    p95: float
    busy_rate: float


async def waits(bed: Bed, *, backlog: int, seconds: int, is_fair: bool) -> Waits:
    """Add one job a second of a tenant beside the backlog of another, for two workers of ten places."""
    async with bed.fresh("bench_fairness") as url, raw_on(url) as raw, driver_on(url) as driver:
        if is_fair:
            await driver.set_queue("default", QueueChange(is_fair=True))
        for start in range(0, backlog, 10_000):
            few = new_jobs(min(10_000, backlog - start))
            await driver.enqueue_many([replace(job, tenant="busy") for job in few])
        workers = [await start_worker(url, 10, "brief") for _ in range(2)]
        before, began = await raw.fetchval(_BUSY_DONE), time.perf_counter()
        for number, job in enumerate(new_jobs(seconds)):
            await asyncio.sleep(max(0.0, began + number + 1 - time.perf_counter()))
            await driver.enqueue(replace(job, tenant="other"))
        rate = (await raw.fetchval(_BUSY_DONE) - before) / (time.perf_counter() - began)
        taken = await _all_waits(raw, seconds)
        for worker in workers:
            worker.terminate()
        await asyncio.gather(*(worker.communicate() for worker in workers))
        return Waits(p95=statistics.quantiles(taken, n=20, method="inclusive")[-1], busy_rate=rate)


async def _all_waits(raw: Any, count: int) -> list[float]:
    while True:
        taken = [row[0] for row in await raw.fetch(_WAITS)]
        if len(taken) == count:
            return taken
        await asyncio.sleep(0.5)
