"""Claims that ride along with a settle: one call for both, nothing lost with its reply, and none once leaving."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.state import State
from app.domain.verdict import Reason
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.lifecycle.drain import DrainNotice
from app.worker.intake import Intake
from app.worker.roster import Run
from tests.roles.harness import QUICK, Bench, Flaky, working

DOWN = DriverUnavailable("the store is down", fix="wait")
# One place, and nothing else that would look for work or hand claims back.
ONE = replace(QUICK, concurrency=1, lease=timedelta(seconds=60), poll=timedelta(minutes=10))


class Gated:
    """Bodies that wait to be let through, and what ran."""

    def __init__(self) -> None:
        self.ran: list[JobId] = []
        self.gate = asyncio.Event()

    @property
    def handle(self) -> JobHandle[object, None]:
        @job("gated.job")
        async def gated(ctx: JobContext) -> None:
            self.ran.append(ctx.id)
            await self.gate.wait()

        return gated  # type: ignore[return-value] # its payload is empty


async def test_a_busy_worker_claims_along_with_what_it_settles() -> None:
    gated, driver = Gated(), Flaky()
    async with working(gated.handle, driver=driver, options=ONE) as bench:
        jobs = [await bench.enqueue("gated.job") for _ in range(4)]
        await bench.until("attempt.started", jobs[0])
        driver.calls.clear()
        gated.gate.set()
        for job_id in jobs:
            await bench.until("attempt.completed", job_id)
        assert gated.ran == jobs
        assert driver.calls.count("settle_and_claim") == len(jobs)
        assert driver.calls.count("claim") == driver.calls.count("settle_and_claim"), "a call of its own beside them"


async def test_after_a_lost_reply_the_settle_is_repeated_and_the_claim_handed_back() -> None:
    gated, driver = Gated(), Flaky()
    async with working(gated.handle, driver=driver, options=ONE) as bench:
        first, second = [await bench.enqueue("gated.job") for _ in range(2)]
        await bench.until("attempt.started", first)
        driver.after["claim"] = DOWN
        gated.gate.set()
        await bench.probe.wait("settle.failed")
        driver.after.clear()
        await bench.until("attempt.completed", first)
        await bench.until("attempt.completed", second)
        assert gated.ran == [first, second]
        assert bench.probe.of("claim.reconciled")
        assert not bench.probe.of("lease.lost")
        assert bench.value("outlast_jobs_total", job="gated.job", queue="default", outcome="ok") == 2


async def test_from_the_drain_on_a_settle_claims_nothing() -> None:
    gated, driver = Gated(), Flaky()
    bench = Bench([gated.handle], driver=driver, options=ONE)
    await bench.worker.start()
    first, second = [await bench.enqueue("gated.job") for _ in range(2)]
    await bench.until("attempt.started", first)
    driver.calls.clear()
    bench.worker.drain(_notice(bench))
    gated.gate.set()
    await bench.worker.stop()
    assert "settle" in driver.calls
    assert "claim" not in driver.calls
    assert (await bench.view(first)).state is State.DONE
    waiting = await bench.view(second)
    assert (waiting.state, waiting.counters.claim_no) == (State.READY, 0)


async def test_a_run_told_to_stop_as_it_comes_in_goes_back_and_gives_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the loop is busy the heartbeat's thread tells what is held: also what a settle has only just brought."""
    gated, driver, told = Gated(), Flaky(), list[JobId]()
    hold = Intake._hold

    def hold_and_tell(intake: Intake, run: Run) -> None:
        hold(intake, run)
        if gated.ran and not told:
            told.append(run.job.token.job_id)
            run.signal.fire(Reason.DRAIN)

    monkeypatch.setattr(Intake, "_hold", hold_and_tell)
    async with working(gated.handle, driver=driver, options=ONE) as bench:
        first, second = [await bench.enqueue("gated.job") for _ in range(2)]
        await bench.until("attempt.started", first)
        gated.gate.set()
        await bench.until("attempt.completed", second)
        assert told == [second]
        assert driver.calls.count("release") == 1
        assert gated.ran == [first, second]


async def test_what_a_settle_was_claiming_when_the_drain_came_goes_back_unbegun() -> None:
    gated, driver = Gated(), Flaky()
    bench = Bench([gated.handle], driver=driver, options=ONE)
    await bench.worker.start()
    first, second = [await bench.enqueue("gated.job") for _ in range(2)]
    await bench.until("attempt.started", first)
    entered, may_claim = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        entered.set()
        await may_claim.wait()

    driver.hold["claim"] = hold
    gated.gate.set()
    await asyncio.wait_for(entered.wait(), 5)
    bench.worker.drain(_notice(bench))
    may_claim.set()
    await bench.worker.stop()
    assert gated.ran == [first]
    assert (await bench.view(first)).state is State.DONE
    assert (await bench.view(second)).state is State.READY
    assert bench.worker.abandoned == 0


async def test_a_body_that_runs_on_keeps_its_place_from_the_claim_that_rides_along() -> None:
    """Its attempt is closed over it and settled, but nothing starts beside it."""
    may_end = asyncio.Event()
    options = replace(ONE, cancel_grace=timedelta(milliseconds=10))
    ran: list[int] = []

    @job("deaf.job", timeout=timedelta(milliseconds=20), abort="signal")
    async def deaf(ctx: JobContext) -> None:
        ran.append(ctx.claim_no)
        await may_end.wait()

    async with working(deaf, options=options) as bench:
        first = await bench.enqueue("deaf.job", max_attempts=1)
        second = await bench.enqueue("deaf.job", max_attempts=1)
        await bench.until("attempt.abandoned", first)
        assert (await bench.view(first)).state is State.DEAD
        assert (await bench.view(second)).state is State.READY
        may_end.set()
        await bench.until("attempt.completed", second)
        assert ran == [1, 1]


def _notice(bench: Bench) -> DrainNotice:
    return DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=5.0)
