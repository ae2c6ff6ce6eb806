"""A worker that is woken for the gate looks at once: also one that just looks, or has one place for all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from app.domain.limit import Admitted
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import ClaimRequest
from app.jobs.handle import job
from app.jobs.limits import Limit
from tests.roles.harness import QUICK, Flaky, working
from tests.roles.test_limits import ALL

# A look that only a poll leads to comes far too late for these tests.
SELDOM = replace(QUICK, poll=timedelta(seconds=60))
SOON = 5


@job("one.job", limits=[Limit(1)])
async def one() -> None: ...


@job("plain.job")
async def plain() -> None: ...


class Replying(Flaky):
    """A driver whose next admission is held between its look and its reply, once it is armed."""

    def __init__(self) -> None:
        super().__init__(MemoryDriver())
        self.is_armed = False
        self.looked, self.go_on = asyncio.Event(), asyncio.Event()

    async def admit(self, request: ClaimRequest) -> Admitted:
        answer = await self.inner.admit(request)
        if self.is_armed:
            self.is_armed = False
            self.looked.set()
            await self.go_on.wait()
        return answer


async def test_a_worker_with_one_free_place_begins_a_limited_job_at_once() -> None:
    async with working(one, plain, options=replace(SELDOM, concurrency=1)) as bench, asyncio.timeout(SOON):
        for _ in range(3):
            await bench.until("attempt.completed", await bench.enqueue("one.job", limits=ALL))
            await bench.until("attempt.completed", await bench.enqueue("plain.job"))


async def test_a_job_that_comes_while_an_admission_is_on_its_way_back_begins_at_once() -> None:
    driver = Replying()
    async with working(one, plain, driver=driver, options=SELDOM) as bench, asyncio.timeout(SOON):
        await bench.until("attempt.completed", await bench.enqueue("one.job", limits=ALL))
        driver.is_armed = True
        await bench.enqueue("plain.job")
        await driver.looked.wait()
        late = await bench.enqueue("one.job", limits=ALL)
        driver.go_on.set()
        await bench.until("attempt.completed", late)


async def test_limited_jobs_have_the_places_that_the_others_leave() -> None:
    go_on = asyncio.Event()

    @job("long.job", limits=[Limit(10)])
    async def long() -> None:
        await go_on.wait()

    async with working(long, plain, options=SELDOM) as bench, asyncio.timeout(SOON):
        jobs = [await bench.enqueue("long.job", limits=ALL) for _ in range(10)]
        for job_id in jobs:
            await bench.until("attempt.started", job_id)
        go_on.set()
