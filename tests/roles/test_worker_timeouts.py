"""What ends a run by time: timeouts, deadlines, and bodies that do not listen."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.state import DeadReason, State
from app.domain.verdict import Reason
from app.jobs.context import JobContext
from app.jobs.exits import Snooze
from app.jobs.handle import job
from app.worker.run_signal import RunSignal
from tests.roles.harness import QUICK, Flaky, working

SOON = RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), jitter="none")


async def test_a_timeout_tells_the_body_then_cancels_it_and_counts() -> None:
    told: list[Reason | None] = []

    @job("slow.job", timeout=timedelta(milliseconds=50), retry=SOON)
    async def slow(ctx: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.signal.reason)

    async with working(slow) as bench:
        job_id = await bench.enqueue("slow.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        view = await bench.view(job_id)
        assert told == [Reason.TIMEOUT]
        assert view.error is not None
        assert (view.error.code, view.error.message) == (
            "JOB_TIMEOUT",
            "the attempt ran longer than its timeout of 0.05 s",
        )
        assert view.error.traceback is not None
        assert "slow" in view.error.traceback


async def test_a_requests_lower_timeout_wins() -> None:
    @job("slow.job", timeout=timedelta(minutes=5))
    async def slow() -> None:
        await asyncio.Event().wait()

    async with working(slow) as bench:
        job_id = await bench.enqueue("slow.job", max_attempts=1, timeout=timedelta(milliseconds=40))
        await bench.until("attempt.dead", job_id)
        error = (await bench.view(job_id)).error
        assert error is not None
        assert (error.code, error.message) == ("JOB_TIMEOUT", "the attempt ran longer than its timeout of 0.04 s")


async def test_a_body_that_returns_after_its_timeout_is_done_and_late() -> None:
    @job("late.job", timeout=timedelta(milliseconds=30), abort="signal")
    async def late(ctx: JobContext) -> str:
        await ctx.signal.wait()
        return "after all"

    async with working(late) as bench:
        job_id = await bench.enqueue("late.job")
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.result, view.late) == (State.DONE, '"after all"', True)


@pytest.mark.parametrize(("how", "state"), [("returns", State.DONE), ("snoozes", State.DELAYED)])
async def test_a_body_whose_cancellation_waited_for_its_last_call_ends_as_it_ended(how: str, state: State) -> None:
    driver = Flaky()

    @job("child.job")
    async def child() -> None: ...

    @job("parent.job", timeout=timedelta(milliseconds=10))
    async def parent(ctx: JobContext) -> str:
        async def until_cancelled() -> None:
            while not cast("RunSignal", ctx.signal)._is_cancel_due:
                await asyncio.sleep(0)

        driver.hold["enqueue"] = until_cancelled
        await ctx.enqueue(child, {}, delay=timedelta(hours=1))
        if how == "snoozes":
            raise Snooze(timedelta(hours=1))
        return "after all"

    patient = replace(QUICK, cancel_grace=timedelta(milliseconds=300))
    async with working(parent, driver=driver, options=patient) as bench:
        job_id = await bench.enqueue("parent.job", max_attempts=1)
        await bench.until("attempt.completed" if how == "returns" else "attempt.suspended", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.late) == (state, how == "returns")


async def test_a_passed_deadline_is_dead_whatever_budget_is_left() -> None:
    @job("slow.job", retry=SOON)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with working(slow) as bench:
        job_id = await bench.enqueue("slow.job", deadline=timedelta(milliseconds=150), max_attempts=9)
        await bench.until("attempt.dead", job_id)
        view = await bench.view(job_id)
        assert view.state_reason == DeadReason.DEADLINE
        assert view.error is not None
        assert view.error.code == "JOB_TIMEOUT"


async def test_a_sync_body_sees_its_timeout_by_its_signal_and_is_never_cancelled() -> None:
    @job("sync.job", timeout=timedelta(milliseconds=50), retry=SOON)
    def body(ctx: JobContext) -> None:
        assert ctx.signal.wait(timedelta(seconds=10))
        ctx.signal.raise_if_aborted()

    async with working(body) as bench:
        job_id = await bench.enqueue("sync.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        error = (await bench.view(job_id)).error
        assert error is not None
        assert error.code == "JOB_TIMEOUT"


async def test_a_stuck_sync_body_loses_its_attempt_and_keeps_its_place() -> None:
    release = threading.Event()
    calls: list[int] = []

    @job("stuck.job", timeout=timedelta(milliseconds=40), retry=SOON)
    def stuck(ctx: JobContext) -> str:
        calls.append(ctx.claim_no)
        if ctx.claim_no == 1:
            release.wait(10)
        return "x"

    one_place = replace(QUICK, concurrency=1)
    async with working(stuck, options=one_place) as bench:
        job_id = await bench.enqueue("stuck.job", max_attempts=5)
        await bench.until("attempt.abandoned", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.last_outcome) in {
            (State.DELAYED, OutcomeKind.RETRIED),
            (State.READY, OutcomeKind.RETRIED),
        }
        assert calls == [1]
        release.set()
        await bench.until("attempt.completed", job_id)
        assert calls == [1, 2]
