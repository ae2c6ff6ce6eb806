"""A job one short of its crash budget runs alone in its worker, so that the last crash is its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.state import State
from app.drivers.protocol import ClaimRequest, QueueShare
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.lifecycle.drain import DrainNotice
from tests.roles.harness import QUICK, Bench, Flaky, Gate, working
from tests.support.drivers import new_worker

NEVER = replace(QUICK, alone_after=timedelta(hours=1))
SOON = replace(QUICK, alone_after=timedelta(milliseconds=100), poll=timedelta(milliseconds=50))


class Neighbours:
    """Bodies that run until they are let go, and a suspect that says when it runs."""

    def __init__(self) -> None:
        self.gates: dict[int, asyncio.Event] = {}
        self.alone, self.go_on = asyncio.Event(), asyncio.Event()
        self.order: list[str] = []

        @job("poison.job")
        async def poison() -> None:
            self.order.append("poison")
            self.alone.set()
            await self.go_on.wait()

        @job("neighbour.job")
        async def neighbour(ctx: JobContext, n: int) -> None:
            self.order.append(f"neighbour {n}")
            await self.gates.setdefault(n, asyncio.Event()).wait()

        self.handles: list[JobHandle[Any, Any]] = [poison, neighbour]

    def let_go(self, n: int) -> None:
        self.gates.setdefault(n, asyncio.Event()).set()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():
            await asyncio.sleep(0)


async def crash_once(bench: Bench, job_id: JobId, name: str) -> None:
    """Let a worker claim the job and vanish; the worker under test must not serve the queue yet."""
    ghost = await bench.driver.register_worker(new_worker(lease_ms=1))
    shares = (QueueShare(queue="default", room=10),)
    while (await bench.view(job_id)).counters.claim_no == 0:
        await bench.driver.claim(ClaimRequest(worker_id=ghost, shares=shares, names=frozenset({name}), room=10))
        ghost = await bench.driver.register_worker(new_worker(lease_ms=1))
    while (await bench.view(job_id)).counters.crashes == 0:
        await bench.driver.reap()


async def start_beside(bench: Bench) -> JobId:
    """Start the worker with neighbour 1 running; then let a suspect come."""
    await bench.worker.start()
    beside = await bench.enqueue("neighbour.job", {"n": 1})
    await bench.until("attempt.started", beside)
    return await bench.enqueue("poison.job", max_crashes=1)


async def seen(bench: Bench, suspect: JobId) -> None:
    """Wait until the worker has claimed the suspect and handed it back."""

    async def is_back() -> bool:
        view = await bench.view(suspect)
        return view.counters.claim_no > 0 and view.state is State.READY

    await until(is_back)


async def test_a_suspect_waits_for_an_empty_worker_and_others_go_on_meanwhile() -> None:
    them, driver = Neighbours(), Flaky()
    bench = Bench(them.handles, driver=driver, options=NEVER)
    suspect = await start_beside(bench)
    await seen(bench, suspect)
    for n in (2, 3):
        other = await bench.enqueue("neighbour.job", {"n": n})
        await bench.until("attempt.started", other)
    assert (await bench.view(suspect)).counters.claim_no == 1, "it is not claimed again and again"
    for n in (1, 2, 3):
        assert not them.alone.is_set()
        them.let_go(n)
    await asyncio.wait_for(them.alone.wait(), 10)
    later = await bench.enqueue("neighbour.job", {"n": 4}, priority=0)
    assert "isolate" in driver.calls
    assert len(bench.worker.held()) == 1
    driver.calls.clear()
    for _ in range(3):  # looks go on, a tenth of a second apart
        await until(lambda: _has(driver, "due"))
        driver.calls.remove("due")
    assert "claim" not in driver.calls
    them.go_on.set()
    await bench.until("attempt.completed", suspect)
    await bench.until("attempt.started", later)
    them.let_go(4)
    await bench.worker.stop()
    assert them.order == ["neighbour 1", "neighbour 2", "neighbour 3", "poison", "neighbour 4"]
    assert not await bench.ledger(suspect)


async def test_an_empty_worker_runs_a_suspect_alone_and_the_others_after_it() -> None:
    them = Neighbours()
    bench = Bench(them.handles, options=NEVER)
    suspect = await bench.enqueue("poison.job", max_crashes=2)
    await crash_once(bench, suspect, "poison.job")
    others = [await bench.enqueue("neighbour.job", {"n": n}) for n in (1, 2)]
    await bench.worker.start()
    await asyncio.wait_for(them.alone.wait(), 10)
    assert (await bench.driver.stats()).by_state[State.RUNNING] == 1
    them.go_on.set()
    for n in (1, 2):
        them.let_go(n)
    for job_id in (suspect, *others):
        await bench.until("attempt.completed", job_id)
    assert [(await bench.view(job_id)).counters.attempt for job_id in others] == [1, 1]
    await bench.worker.stop()


async def test_many_suspects_run_one_after_the_other() -> None:
    running, most = 0, 0

    @job("poison.job")
    async def poison() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1

    async with working(poison, options=NEVER) as bench:
        ids = [await bench.enqueue("poison.job", max_crashes=1) for _ in range(12)]
        for job_id in ids:
            await bench.until("attempt.completed", job_id)
        assert most == 1
        claims = [(await bench.view(job_id)).counters.claim_no for job_id in ids]
        assert max(claims) <= 3, "those behind are not claimed for every one before"


async def test_on_a_busy_worker_a_suspect_gets_its_turn_after_a_while() -> None:
    them, driver = Neighbours(), Flaky()
    bench = Bench(them.handles, driver=driver, options=SOON)
    suspect = await start_beside(bench)
    await seen(bench, suspect)
    held_back = await bench.probe.wait("claim.held_back")
    assert held_back.facts["job_id"] == str(suspect)
    later = await bench.enqueue("neighbour.job", {"n": 2}, priority=0)
    for _ in range(3):
        driver.calls.clear()
        await until(lambda: _has(driver, "describe"))
    assert (await bench.view(later)).state is State.READY
    assert (await bench.view(suspect)).counters.claim_no == 1
    them.let_go(1)
    await asyncio.wait_for(them.alone.wait(), 10)
    assert them.order == ["neighbour 1", "poison"]
    them.go_on.set()
    await bench.until("attempt.started", later)
    them.let_go(2)
    await bench.worker.stop()
    assert len(bench.probe.of("claim.held_back")) == 1


async def _has(driver: Flaky, verb: str) -> bool:
    return verb in driver.calls


async def test_nothing_is_claimed_when_a_drain_came_while_the_store_was_asked_about_the_suspect() -> None:
    them, driver = Neighbours(), Flaky()
    bench = Bench(them.handles, driver=driver, options=SOON)
    suspect = await start_beside(bench)
    await bench.probe.wait("claim.held_back")
    describe = Gate(driver, "describe")
    await asyncio.wait_for(describe.entered.wait(), 5)
    await driver.inner.cancel(suspect, reason="no")
    bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=5))
    driver.calls.clear()
    describe.go_on.set()
    them.let_go(1)
    await bench.worker.stop()
    assert "claim" not in driver.calls
    assert "close_worker" in driver.calls


async def test_nothing_is_held_back_for_a_suspect_that_was_cancelled_or_runs_elsewhere() -> None:
    them = Neighbours()
    bench = Bench(them.handles, options=SOON)
    suspect = await start_beside(bench)
    await bench.probe.wait("claim.held_back")
    await bench.driver.cancel(suspect, reason="no")
    assert (await bench.view(suspect)).state is State.CANCELLED
    other = await bench.enqueue("neighbour.job", {"n": 2})
    await bench.until("attempt.started", other)
    for n in (1, 2):
        them.let_go(n)
    await bench.worker.stop()
    assert "poison" not in them.order


async def test_a_store_that_does_not_answer_whether_it_still_waits_is_asked_again() -> None:
    them, driver = Neighbours(), Flaky()
    driver.before["describe"] = DriverUnavailable("down", fix="wait")
    bench = Bench(them.handles, driver=driver, options=SOON)
    await bench.worker.start()
    await bench.until("attempt.started", await bench.enqueue("neighbour.job", {"n": 1}))
    suspect = await bench.enqueue("poison.job", max_crashes=1)
    await bench.probe.wait("store.call_failed", verb="describe", count=2)
    driver.before.clear()
    them.let_go(1)
    them.go_on.set()
    await bench.until("attempt.completed", suspect)
    await bench.worker.stop()


async def test_a_suspect_that_waits_is_nobodys_when_the_worker_leaves() -> None:
    them = Neighbours()
    bench = Bench(them.handles, options=NEVER)
    suspect = await start_beside(bench)
    await seen(bench, suspect)
    bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=5))
    them.let_go(1)
    await bench.worker.stop()
    view = await bench.view(suspect)
    assert (view.state, view.counters.interrupts, view.counters.crashes) == (State.READY, 0, 0)
    assert not await bench.ledger(suspect)


async def test_a_body_left_over_from_a_closed_attempt_is_no_neighbour() -> None:
    release, alone = threading.Event(), asyncio.Event()

    @job("stuck.job", timeout=timedelta(milliseconds=40))
    def stuck() -> None:
        release.wait(10)

    @job("poison.job")
    async def poison() -> None:
        alone.set()

    try:
        async with working(stuck, poison, options=NEVER) as bench:
            over = await bench.enqueue("stuck.job", max_attempts=1)
            await bench.until("attempt.abandoned", over)
            suspect = await bench.enqueue("poison.job", max_crashes=1)
            await bench.until("attempt.completed", suspect)
            assert alone.is_set()
            assert len(bench.worker.held()) == 1
            release.set()
    finally:
        release.set()


async def test_unknown_names_are_left_ready() -> None:
    @job("known.job")
    async def known() -> int:
        return 1

    async with working(known) as bench:
        stranger = await bench.enqueue("stranger.job")
        job_id = await bench.enqueue("known.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(stranger)).state is State.READY
