"""Workers and queues that are held back: a place that is free is taken at once, and so is a job whose pause is over."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.domain.outcome import Completed, Settlement
from app.domain.queue import QueueChange
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import ClaimRequest, QueueShare
from app.jobs.handle import job
from tests.roles.harness import Flaky, working
from tests.roles.test_worker_maintenance import RARE, Deaf
from tests.support.made import new_job, new_worker

ONE = QueueChange(concurrency=1)


@job("quick.job")
async def quick() -> int:
    return 1


@pytest.mark.parametrize("driver", [Flaky, Deaf], ids=["told of it", "by its own settles"])
async def test_a_worker_takes_the_place_that_its_own_job_gives_back(driver: type[Flaky]) -> None:
    """No look of its own comes within the test: the claim goes with the settle."""
    store = driver()
    await store.inner.set_queue("default", ONE)
    running = most = 0

    @job("slow.job")
    async def slow() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    jobs = [new_job("slow.job") for _ in range(5)]
    await store.inner.enqueue_many(jobs)
    async with working(slow, driver=store, options=RARE) as bench:
        for one in jobs:
            await bench.until("attempt.completed", one.id)
    assert most == 1


async def test_a_worker_takes_the_place_that_another_gives_back() -> None:
    store = MemoryDriver()
    await store.open()
    await store.set_queue("default", ONE)
    other = await store.register_worker(new_worker())
    async with working(quick, driver=store, options=RARE) as bench:
        blocked = await bench.enqueue("quick.job")
        await bench.until("attempt.completed", blocked)
        await store.pause_queue("default", by="ops")
        held_id, waits = await bench.enqueue("quick.job"), await bench.enqueue("quick.job")
        await store.resume_queue("default")
        request = ClaimRequest(
            worker_id=other,
            shares=(QueueShare(queue="default", room=1),),
            names=frozenset({"quick.job"}),
            room=1,
        )
        held = await store.claim(request)  # at once, before the other's loop has had its turn
        assert [one.token.job_id for one in held] == [held_id]
        await asyncio.sleep(0.05)
        assert not bench.probe.of("attempt.started", job_id=str(waits))
        await store.settle([Settlement(held[0].token, Completed())])
        await bench.until("attempt.completed", waits)


@pytest.mark.parametrize("driver", [Flaky, Deaf], ids=["told of it", "by looking"])
async def test_work_begins_when_a_pause_is_over(driver: type[Flaky]) -> None:
    store = driver()
    await store.inner.open()
    async with working(quick, driver=store, options=RARE) as bench:
        until = await store.inner.database_time() + timedelta(milliseconds=300)
        await store.inner.pause_queue("default", by="ops", until=until)
        job_id = await bench.enqueue("quick.job")
        await bench.until("attempt.completed", job_id)
        assert await store.inner.database_time() >= until
