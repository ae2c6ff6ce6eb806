"""Cancel: terminal when acknowledged; the body is told soon, may finish, and stores nothing."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import cast

from app.domain.job import JobId
from app.domain.outcome import CancelVerdict
from app.domain.state import State
from app.domain.verdict import Reason
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.worker.run_signal import RunSignal
from tests.roles.harness import QUICK, Flaky, working


async def test_a_job_cancelled_before_it_starts_never_runs() -> None:
    @job("never.job")
    async def never() -> None:
        raise AssertionError

    async with working(never) as bench:
        job_id = await bench.enqueue("never.job", delay=timedelta(hours=1))
        assert await bench.driver.cancel(job_id, reason="no") is CancelVerdict.CANCELLED_BEFORE_START
        assert (await bench.view(job_id)).state is State.CANCELLED


async def test_a_running_body_is_told_and_cancelled_and_nothing_is_stored() -> None:
    told: list[Reason | None] = []

    @job("long.job")
    async def long(ctx: JobContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.signal.reason)
        return "stored?"

    async with working(long) as bench:
        job_id = await bench.enqueue("long.job")
        await bench.until("attempt.started", job_id)
        assert await bench.driver.cancel(job_id, reason="changed my mind") is CancelVerdict.SIGNALLED
        superseded = await bench.probe.wait("attempt.superseded", job_id=str(job_id))
        assert superseded.facts["by"] == "cancelled"
        view = await bench.view(job_id)
        assert (view.state, view.state_reason, view.result) == (State.CANCELLED, "changed my mind", None)
        assert told == [Reason.CANCEL]
        assert not bench.probe.of("lease.lost")
        assert bench.value("outlast_jobs_total", job="long.job", queue="default", outcome="ok") == 0


async def test_a_body_that_returns_after_the_cancel_stores_nothing() -> None:
    @job("stubborn.job", abort="signal")
    async def stubborn(ctx: JobContext) -> str:
        await ctx.signal.wait()
        return "done all the same"

    async with working(stubborn) as bench:
        job_id = await bench.enqueue("stubborn.job")
        await bench.until("attempt.started", job_id)
        await bench.driver.cancel(job_id, reason="no")
        await bench.until("attempt.superseded", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.result) == (State.CANCELLED, None)


async def test_a_body_that_fails_after_the_cancel_is_not_retried() -> None:
    @job("angry.job", abort="signal")
    async def angry(ctx: JobContext) -> None:
        await ctx.signal.wait()
        raise ValueError("how dare you")

    async with working(angry) as bench:
        job_id = await bench.enqueue("angry.job")
        await bench.until("attempt.started", job_id)
        await bench.driver.cancel(job_id, reason="no")
        await bench.until("attempt.superseded", job_id)
        assert (await bench.view(job_id)).state is State.CANCELLED
        assert not bench.probe.of("attempt.retried")


async def test_a_sync_body_is_told_in_its_thread() -> None:
    told = threading.Event()

    @job("thread.job")
    def body(ctx: JobContext) -> None:
        if ctx.signal.wait(timedelta(seconds=10)):
            told.set()

    async with working(body) as bench:
        job_id = await bench.enqueue("thread.job")
        await bench.until("attempt.started", job_id)
        await bench.driver.cancel(job_id, reason="no")
        await bench.until("attempt.superseded", job_id)
        assert told.is_set()


async def test_a_thousand_cancels_take_no_more_threads_than_there_are_places() -> None:
    """A place is free again once its thread has come back, so that no thread is ever waited for beside a new one."""
    running: set[str] = set()
    most: list[int] = []

    @job("thread.job")
    def body(ctx: JobContext) -> None:
        running.add(name := threading.current_thread().name)
        most.append(len(running))
        ctx.signal.wait(timedelta(seconds=10))
        running.discard(name)

    places, rounds = 50, 20
    async with working(body, options=replace(QUICK, concurrency=places)) as bench:
        for count in range(1, rounds + 1):
            ids = [await bench.enqueue("thread.job") for _ in range(places)]
            for job_id in ids:
                await bench.until("attempt.started", job_id)
                assert await bench.driver.cancel(job_id, reason="no") is CancelVerdict.SIGNALLED
            for job_id in ids:
                await bench.until("attempt.superseded", job_id)
            pool = [one for one in threading.enumerate() if one.name.startswith("outlast.body")]
            assert len(pool) <= places, count
        assert len(most) == places * rounds
        assert max(most) <= places


async def test_a_body_that_swallows_its_cancellation_keeps_its_place_and_is_named() -> None:
    release = asyncio.Event()

    @job("deaf.job")
    async def deaf() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with working(deaf) as bench:
        job_id = await bench.enqueue("deaf.job")
        await bench.until("attempt.started", job_id)
        await bench.driver.cancel(job_id, reason="no")
        abandoned = await bench.probe.wait("attempt.abandoned", job_id=str(job_id))
        assert abandoned.facts["reason"] == "cancel"
        assert len(bench.worker.held()) == 1
        release.set()


async def test_a_cancel_while_the_settle_is_on_its_way_wins_quietly() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        entered.set()
        await go_on.wait()

    @job("quick.job")
    async def quick() -> int:
        return 1

    driver = Flaky()
    driver.hold["settle"] = hold
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job")
        await entered.wait()
        assert await bench.driver.cancel(job_id, reason="no") is CancelVerdict.SIGNALLED
        go_on.set()
        await bench.until("attempt.superseded", job_id)
        assert (await bench.view(job_id)).state is State.CANCELLED
        assert not bench.probe.of("lease.lost")


async def test_a_call_to_the_store_is_never_cut_by_the_end_of_its_run() -> None:
    """The cancel instant comes while an enqueue is under way: its answer arrives, then the body is cancelled."""
    entered, may_answer, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    driver = Flaky()
    stored: list[JobId] = []
    signals: list[RunSignal] = []

    async def hold() -> None:
        entered.set()
        await may_answer.wait()

    @job("child.job")
    async def child() -> None: ...

    @job("parent.job")
    async def parent(ctx: JobContext) -> None:
        driver.hold["enqueue"] = hold
        signals.append(cast("RunSignal", ctx.signal))
        try:
            stored.append((await ctx.enqueue(child, {}, delay=timedelta(hours=1))).id)
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with working(parent, driver=driver) as bench:
        job_id = await bench.enqueue("parent.job")
        await asyncio.wait_for(entered.wait(), 5)
        await bench.driver.cancel(job_id, reason="no")
        # The attempt is closed over its body only after the cancel instant.
        await asyncio.wait_for(asyncio.shield(signals[0].closing), 5)
        assert not ended.is_set()
        may_answer.set()
        await asyncio.wait_for(ended.wait(), 5)
        [child_id] = stored
        assert (await bench.view(child_id)).parent_id == job_id


async def test_a_sync_body_blocks_until_it_is_told_and_learns_why() -> None:
    told: list[object] = []

    @job("thread.job")
    def body(ctx: JobContext) -> None:
        told.append(cast("object", ctx.signal.wait()))

    async with working(body) as bench:
        job_id = await bench.enqueue("thread.job")
        await bench.until("attempt.started", job_id)
        await bench.driver.cancel(job_id, reason="no")
        await bench.until("attempt.superseded", job_id)
        assert told == [Reason.CANCEL]
