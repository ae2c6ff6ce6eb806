"""Pick-up figures: from a committed enqueue to the body's first line, in an idle and in a steadily fed worker.

The enqueuer has a driver of its own, as in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from app.drivers.postgres.claim import CLAIM_ONE
from app.jobs import JobContext, job
from app.jobs.registry import Registry

from .bed import Bed, cpu_of, driver_on, raw_on
from .drain import WHOLE, bench_worker, start_worker
from .idle import calls_of
from .work import NAME, build_worker, new_jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds from enqueue to body; CPU of worker and server in seconds a second."""

    p50: float
    p99: float
    worker_cpu: float = 0.0
    server_cpu: float = 0.0


async def idle(bed: Bed, *, jobs: int) -> Latency:
    """Enqueue one job after the other into a worker that has nothing else to do."""
    async with bed.fresh("bench_idle") as url, driver_on(url) as driver, driver_on(url) as producer:
        clock = _Clock()
        worker = build_worker(driver, 10, registry=Registry([clock.job]))
        await worker.start()
        try:
            for new in new_jobs(jobs):
                await producer.enqueue(new)
                clock.enqueued[new.id] = time.perf_counter()
                await clock.begun(new.id)
                await asyncio.sleep(0.005)
        finally:
            await worker.stop()
        return clock.latency()


async def steady(bed: Bed, *, rate: int, seconds: float) -> Latency:
    """Enqueue at a steady rate from this process into a worker in another, whose CPU is its own."""
    async with bed.fresh("bench_steady") as url, driver_on(url) as driver, raw_on(url) as raw:
        worker = await start_worker(url, 50, "notes")
        await driver.enqueue_many(new_jobs(100))
        await _all_done(raw, 100)
        cpu, server = cpu_of(worker.pid), bed.cpu_seconds()
        enqueued: dict[str, float] = {}
        start = time.perf_counter()
        for number, new in enumerate(new_jobs(int(rate * seconds))):
            await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
            await driver.enqueue(new)
            enqueued[str(new.id)] = time.perf_counter()
        await _all_done(raw, 100 + len(enqueued))
        cpu, server = cpu_of(worker.pid) - cpu, bed.cpu_seconds() - server
        worker.terminate()
        printed, _ = await worker.communicate()
        began: dict[str, float] = json.loads(printed)
        taken = [began[job_id] - at for job_id, at in enqueued.items()]
        return _latency(taken, worker_cpu=cpu / seconds, server_cpu=server / seconds)


async def _all_done(raw: Any, count: int) -> None:
    while await raw.fetchval("select count(*) from outlast.finished") < count:
        await asyncio.sleep(0.02)


async def by_statements(bed: Bed, *, jobs: int) -> Latency:
    """The least there is: a NOTIFY heard by a bare connection that then claims on another."""
    async with bed.fresh("bench_raw_idle") as url, driver_on(url) as driver, raw_on(url) as ear, raw_on(url) as hand:
        worker = await driver.register_worker(bench_worker())
        await driver.enqueue_many(new_jobs(1))
        name_id = await hand.fetchval("select id from outlast.job_name where name = $1", NAME)
        await hand.execute("delete from outlast.ready")
        heard = asyncio.Event()
        await ear.add_listener("outlast_ready", lambda *_: heard.set())
        taken: list[float] = []
        for new in new_jobs(jobs):
            heard.clear()
            await driver.enqueue(new)
            began = time.perf_counter()
            await heard.wait()
            while len(await hand.fetch(CLAIM_ONE, worker, ["default"], [10], [name_id], 10, True, *WHOLE)) == 1:
                pass
            taken.append(time.perf_counter() - began)
            await asyncio.sleep(0.005)
        return _latency(taken)


async def idle_statements(bed: Bed, *, seconds: float) -> float:
    """Give the statements a second of an idle worker, its heartbeat and sweeps included."""
    async with bed.fresh("bench_quiet") as url, driver_on(url) as driver, raw_on(url) as raw:
        await raw.execute("create extension if not exists pg_stat_statements")
        worker = build_worker(driver, 10)
        await worker.start()
        try:
            await asyncio.sleep(2)
            before = await calls_of(raw)
            await asyncio.sleep(seconds)
            return float(await calls_of(raw) - before - 1) / seconds
        finally:
            await worker.stop()


class _Clock:
    """A job that notes when its body begins."""

    def __init__(self) -> None:
        self.enqueued: dict[Any, float] = {}
        self._began: dict[Any, float] = {}
        self._waiting: dict[Any, asyncio.Event] = {}

        @job(NAME)
        async def note(ctx: JobContext, number: int = 0) -> None:
            self._began[ctx.id] = time.perf_counter()
            if (event := self._waiting.get(ctx.id)) is not None:
                event.set()

        self.job = note

    async def begun(self, job_id: Any) -> None:
        event = self._waiting[job_id] = asyncio.Event()
        if job_id not in self._began:
            await event.wait()

    def latency(self) -> Latency:
        return _latency([began - self.enqueued[job_id] for job_id, began in self._began.items()])


def _latency(taken: list[float], *, worker_cpu: float = 0.0, server_cpu: float = 0.0) -> Latency:
    taken.sort()
    return Latency(
        p50=taken[len(taken) // 2], p99=taken[int(len(taken) * 0.99)], worker_cpu=worker_cpu, server_cpu=server_cpu
    )
