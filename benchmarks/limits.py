"""Limit figures: jobs under a rate, or limits of a width and number of keys, run to done by one worker process."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from app.domain.job import LimitKey, NewJob
from app.domain.limit import RATE

from .bed import Bed, driver_on, raw_on, wal_position
from .drain import start_worker
from .work import new_jobs

_BUSY = "select exists (select from outlast.gate) or exists (select from outlast.running)"
_SPAN = "select extract(epoch from max(finished_at) - min(started_at))::float from outlast.finished"


async def by_workers(
    bed: Bed, *, jobs: int, kind: str, keys: int, concurrency: int, processes: int = 1
) -> tuple[float, float]:
    """Give jobs a second, and WAL bytes a job, of workers that find so many jobs of so many keys in the gate."""
    async with bed.fresh("bench_limits") as url, raw_on(url) as raw:
        async with driver_on(url) as driver:
            work = _under(new_jobs(jobs), keys, RATE if kind == "rated" else "limit")
            for start in range(0, jobs, 10_000):
                await driver.enqueue_many(work[start : start + 10_000])
        await raw.execute("insert into outlast.queue(name, paused_at) values ('default', outlast.clock())")
        workers = [await start_worker(url, concurrency, kind) for _ in range(processes)]
        before = await wal_position(raw)
        await raw.execute("delete from outlast.queue")
        await raw.execute("select pg_notify('outlast_ready', '')")
        while await raw.fetchval(_BUSY):
            await asyncio.sleep(0.25)
        wal = (await wal_position(raw) - before) / jobs
        for worker in workers:
            worker.terminate()
        await asyncio.gather(*(worker.communicate() for worker in workers))
        return jobs / float(await raw.fetchval(_SPAN)), wal


def _under(jobs: list[NewJob], keys: int, name: str) -> list[NewJob]:
    return [replace(job, limits=(LimitKey(name, str(number % keys)),)) for number, job in enumerate(jobs)]
