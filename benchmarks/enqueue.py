"""Enqueue figures: one by one from many callers, and in bulk, each beside the statement alone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from app.drivers.postgres.enqueue_columns import plain_columns
from app.drivers.postgres.enqueue_statements import ENQUEUE_PLAIN

from .bed import Bed, driver_on, raw_on
from .work import NAME, new_jobs


async def one_by_one(bed: Bed, *, callers: int, jobs: int) -> tuple[float, float]:
    """Give jobs a second through the driver, and through one bare connection fed with what has gathered."""
    async with bed.fresh("bench_enqueue") as url:
        async with driver_on(url) as driver:
            await driver.enqueue_many(new_jobs(100))
            ours = await _timed(jobs, callers, driver.enqueue)
        async with raw_on(url) as raw:
            feed = _Feed(raw, await _names(raw))
            baseline = await _timed(jobs, callers, feed.enqueue)
        return ours, baseline


async def bulk(bed: Bed, *, jobs: int, batch: int = 10_000) -> tuple[float, float]:
    """Give jobs a second in batches through the driver, and through the statement alone."""
    async with bed.fresh("bench_bulk") as url:
        async with driver_on(url) as driver:
            await driver.enqueue_many(new_jobs(1_000))
            work = new_jobs(jobs)
            began = time.perf_counter()
            for start in range(0, jobs, batch):
                await driver.enqueue_many(work[start : start + batch])
            ours = jobs / (time.perf_counter() - began)
        async with raw_on(url) as raw:
            names = await _names(raw)
            columns = [plain_columns(work_, names) for work_ in _batches(new_jobs(jobs), batch)]
            began = time.perf_counter()
            for each in columns:
                await raw.fetch(ENQUEUE_PLAIN, *each)
            return ours, jobs / (time.perf_counter() - began)


class _Feed:
    """The least a caller-by-caller enqueue can do: whatever has gathered goes out in one statement."""

    def __init__(self, raw: Any, names: dict[str, int]) -> None:
        self._raw = raw
        self._names = names
        self._waiting: list[tuple[Any, asyncio.Future[None]]] = []
        self._is_sending = False

    async def enqueue(self, job: Any) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, done))
        if not self._is_sending:
            self._is_sending = True
            while self._waiting:
                taken, self._waiting = self._waiting, []
                await self._raw.fetch(ENQUEUE_PLAIN, *plain_columns([job for job, _ in taken], self._names))
                for _, future in taken:
                    future.set_result(None)
            self._is_sending = False
        await done


async def _timed(jobs: int, callers: int, enqueue: Any) -> float:
    work = iter(new_jobs(jobs))

    async def call() -> None:
        for job in work:
            await enqueue(job)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return jobs / (time.perf_counter() - began)


async def _names(raw: Any) -> dict[str, int]:
    return {NAME: await raw.fetchval("select id from outlast.job_name where name = $1", NAME)}


def _batches(jobs: list[Any], size: int) -> list[list[Any]]:
    return [jobs[start : start + size] for start in range(0, len(jobs), size)]
