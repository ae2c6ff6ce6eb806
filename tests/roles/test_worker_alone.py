"""A job one short of its crash budget runs alone in its worker, so that the last crash is its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from app.drivers.protocol import ClaimRequest, QueueShare
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from tests.roles.harness import QUICK, Bench, Flaky, working
from tests.support.drivers import new_worker


async def crash_once(bench: Bench, job_id: JobId, name: str) -> None:
    """Let a worker claim the job and vanish; the worker under test must not serve the queue yet."""
    ghost = await bench.driver.register_worker(new_worker(lease_ms=1))
    shares = (QueueShare(queue="default", room=10),)
    while (await bench.view(job_id)).counters.claim_no == 0:
        await bench.driver.claim(ClaimRequest(worker_id=ghost, shares=shares, names=frozenset({name}), room=10))
        ghost = await bench.driver.register_worker(new_worker(lease_ms=1))
    while (await bench.view(job_id)).counters.crashes == 0:
        await bench.driver.reap()


async def test_a_poison_job_waits_for_its_neighbours_and_holds_new_work_back() -> None:
    release, alone, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    order: list[str] = []

    @job("poison.job")
    async def poison() -> None:
        order.append("poison")
        alone.set()
        await go_on.wait()

    @job("neighbour.job")
    async def neighbour(ctx: JobContext, n: int) -> None:
        order.append(f"neighbour {n}")
        await release.wait()

    driver = Flaky()
    bench = Bench([poison, neighbour], driver=driver)
    suspect = await bench.enqueue("poison.job", max_crashes=2)
    await crash_once(bench, suspect, "poison.job")
    await bench.driver.pause_queue("default", by="test")
    await bench.worker.start()
    beside = await bench.enqueue("neighbour.job", {"n": 1}, priority=0)
    await bench.driver.resume_queue("default")
    await bench.until("attempt.started", beside)
    later = await bench.enqueue("neighbour.job", {"n": 2})
    assert order == ["neighbour 1"]
    release.set()
    await alone.wait()
    assert "isolate" in driver.calls
    assert order == ["neighbour 1", "poison"]
    assert len(bench.worker.held()) == 1
    go_on.set()
    await bench.until("attempt.completed", suspect)
    await bench.until("attempt.completed", later)
    await bench.worker.stop()


async def test_a_poison_job_that_waits_for_its_turn_goes_back_when_the_worker_leaves() -> None:
    release = asyncio.Event()

    @job("poison.job")
    async def poison() -> None:
        raise AssertionError

    @job("neighbour.job")
    async def neighbour() -> None:
        await release.wait()

    bench = Bench([poison, neighbour])
    suspect = await bench.enqueue("poison.job", max_crashes=2)
    await crash_once(bench, suspect, "poison.job")
    await bench.driver.pause_queue("default", by="test")
    await bench.worker.start()
    beside = await bench.enqueue("neighbour.job", priority=0)
    await bench.driver.resume_queue("default")
    await bench.until("attempt.started", beside)
    while (await bench.view(suspect)).state is not State.RUNNING:
        await asyncio.sleep(0)
    bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=5))
    release.set()
    await bench.worker.stop()
    view = await bench.view(suspect)
    assert (view.state, view.counters.interrupts, view.counters.crashes) == (State.READY, 0, 1)
    assert [one.outcome for one in await bench.ledger(suspect)] == [OutcomeKind.CRASHED]


async def test_a_poison_job_cancelled_while_it_waits_never_runs() -> None:
    release = asyncio.Event()

    @job("poison.job")
    async def poison() -> None:
        raise AssertionError

    @job("neighbour.job")
    async def neighbour() -> None:
        await release.wait()

    options = replace(QUICK, poll=timedelta(milliseconds=50))
    bench = Bench([poison, neighbour], options=options)
    suspect = await bench.enqueue("poison.job", max_crashes=2)
    await crash_once(bench, suspect, "poison.job")
    await bench.driver.pause_queue("default", by="test")
    await bench.worker.start()
    beside = await bench.enqueue("neighbour.job", priority=0)
    await bench.driver.resume_queue("default")
    await bench.until("attempt.started", beside)
    while (await bench.view(suspect)).state is not State.RUNNING:
        await asyncio.sleep(0)
    await bench.driver.cancel(suspect, reason="no")
    release.set()
    await bench.until("attempt.completed", beside)
    last = await bench.enqueue("neighbour.job")
    await bench.until("attempt.completed", last)
    assert (await bench.view(suspect)).state is State.CANCELLED
    await bench.worker.stop()


async def test_unknown_names_are_left_ready() -> None:
    @job("known.job")
    async def known() -> int:
        return 1

    async with working(known) as bench:
        stranger = await bench.enqueue("stranger.job")
        job_id = await bench.enqueue("known.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(stranger)).state is State.READY
