"""Workers of fair queues: jobs begin in turns, and none waits for a look that comes by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.queue import QueueChange
from app.domain.snapshot import Due
from app.drivers.memory.driver import MemoryDriver
from app.jobs import JobContext
from app.jobs.handle import job
from app.worker.options import QueueLimit
from tests.roles.harness import Flaky, working
from tests.roles.test_worker_maintenance import RARE, Deaf
from tests.support.made import QUEUE, new_job

FAIR = QueueChange(is_fair=True)
SOON = 5


@job("quick.job")
async def quick() -> int:
    return 1


async def test_jobs_begin_in_the_turns_of_their_tenants() -> None:
    store = MemoryDriver()
    await store.open()
    await store.set_queue(QUEUE, FAIR)
    begun = ""

    @job("named.job")
    async def named(ctx: JobContext) -> None:
        nonlocal begun
        begun += ctx.tenant

    jobs = [new_job("named.job", tenant=tenant) for tenant in "aaaabb"]
    await store.enqueue_many(jobs)
    async with working(named, driver=Flaky(store), options=replace(RARE, concurrency=1)) as bench:
        for one in jobs:
            await bench.until("attempt.completed", one.id)
    assert begun == "ababaa"


@pytest.mark.parametrize("driver", [Flaky, Deaf], ids=["told of it", "by looking"])
async def test_a_queue_that_becomes_fair_while_a_worker_runs_is_served_at_once(driver: type[Flaky]) -> None:
    store = driver()
    options = RARE if driver is Flaky else replace(RARE, poll=timedelta(milliseconds=50))
    async with working(quick, driver=store, options=options) as bench, asyncio.timeout(SOON):
        await bench.until("attempt.completed", await bench.enqueue("quick.job"))
        await store.inner.set_queue(QUEUE, FAIR)
        for tenant in "aab":
            await bench.until("attempt.completed", await bench.enqueue("quick.job", tenant=tenant))
        await store.inner.set_queue(QUEUE, QueueChange(is_fair=False))
        await bench.until("attempt.completed", await bench.enqueue("quick.job"))


async def test_fair_jobs_and_those_of_other_queues_share_a_worker() -> None:
    store = Flaky()
    await store.inner.set_queue(QUEUE, FAIR)
    options = replace(RARE, queues=(QueueLimit(queue=QUEUE), QueueLimit(queue="other")), concurrency=4)
    async with working(quick, driver=store, options=options) as bench, asyncio.timeout(SOON):
        jobs = [new_job("quick.job", queue=queue) for _ in range(20) for queue in (QUEUE, "other")]
        await store.inner.enqueue_many(jobs)
        for one in jobs:
            await bench.until("attempt.completed", one.id)


async def test_a_sweep_lines_up_what_is_out_of_line() -> None:
    class OutOfLine(Flaky):
        """A store in which jobs came back that had begun before their queue was fair."""

        async def due(self) -> Due:
            return replace(await self.inner.due(), must_line_up="line_up" not in self.calls)

    store = OutOfLine()
    async with working(quick, driver=store, options=RARE), asyncio.timeout(SOON):
        while "line_up" not in store.calls:
            await asyncio.sleep(0.01)
