"""Leaving in order: claims go back, bodies are told, what ends counts, what does not is given up by the deadline."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import Aborted, DriverUnavailable
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from app.domain.verdict import Reason
from app.drivers.memory.driver import MemoryDriver
from app.jobs.context import JobContext
from app.jobs.exits import RetryAfter, Snooze, Terminal
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Phase
from app.lifecycle.status import Tally
from tests.roles.harness import QUICK, Bench, Flaky


def notice(bench: Bench, seconds: float = 5.0) -> DrainNotice:
    return DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=seconds)


async def started(bench: Bench, name: str, **fields: object) -> tuple[Bench, object]:
    await bench.worker.start()
    job_id = await bench.enqueue(name, **fields)
    await bench.until("attempt.started", job_id)
    return bench, job_id


async def test_a_body_that_stops_when_told_is_interrupted_uncounted() -> None:
    said: list[str] = []

    @job("told.job")
    async def told(ctx: JobContext) -> None:
        await ctx.signal.wait()
        try:
            ctx.signal.raise_if_aborted()
        except Aborted as error:
            said.append(error.cause)
            raise

    bench = Bench([told])
    await bench.worker.start()
    job_id = await bench.enqueue("told.job", max_attempts=1)
    await bench.until("attempt.started", job_id)
    bench.worker.drain(notice(bench))
    await bench.worker.stop()
    view = await bench.view(job_id)
    assert (view.state, view.counters.attempt, view.counters.interrupts) == (State.READY, 0, 1)
    (attempt,) = await bench.ledger(job_id)
    assert (attempt.outcome, attempt.cause, attempt.counted) == (OutcomeKind.INTERRUPTED, "drain", False)
    assert attempt.error is not None
    assert attempt.error.code == "ABORTED"
    assert said == [f"the run was told to stop: worker {attempt.worker_id} is draining (SIGTERM)"]
    assert bench.value("outlast_attempts_interrupted_total", job="told.job", queue="default") == 1
    assert bench.value("outlast_jobs_total", job="told.job", queue="default", outcome="failed") == 0
    assert bench.worker.abandoned == 0
    (row,) = await bench.driver.workers()
    assert row.closed_at is not None


async def test_a_terminal_error_while_draining_is_an_interruption() -> None:
    @job("told.job")
    async def told(ctx: JobContext) -> None:
        await ctx.signal.wait()
        raise Terminal("never again")

    bench = Bench([told])
    await bench.worker.start()
    job_id = await bench.enqueue("told.job")
    await bench.until("attempt.started", job_id)
    bench.worker.drain(notice(bench))
    await bench.worker.stop()
    assert (await bench.view(job_id)).state is State.READY


@pytest.mark.parametrize("how", ["retry after", "snooze"])
async def test_a_wait_asked_for_while_draining_is_kept(how: str) -> None:
    @job("told.job")
    async def told(ctx: JobContext) -> None:
        await ctx.signal.wait()
        raise RetryAfter(timedelta(hours=1)) if how == "retry after" else Snooze(timedelta(hours=1))

    bench = Bench([told])
    await bench.worker.start()
    job_id = await bench.enqueue("told.job")
    await bench.until("attempt.started", job_id)
    bench.worker.drain(notice(bench))
    await bench.worker.stop()
    view = await bench.view(job_id)
    assert (view.state, view.counters.attempt) == (State.DELAYED, 0)


async def test_a_body_that_finishes_while_draining_is_done() -> None:
    @job("finishes.job")
    async def finishes(ctx: JobContext) -> str:
        await ctx.signal.wait()
        return "just in time"

    bench = Bench([finishes])
    await bench.worker.start()
    job_id = await bench.enqueue("finishes.job")
    await bench.until("attempt.started", job_id)
    bench.worker.drain(notice(bench))
    await bench.worker.stop()
    view = await bench.view(job_id)
    assert (view.state, view.result, view.late) == (State.DONE, '"just in time"', True)


async def test_a_body_that_waits_for_something_else_is_cancelled_before_the_deadline() -> None:
    @job("busy.job")
    async def busy() -> None:
        await asyncio.Event().wait()

    bench = Bench([busy])
    await bench.worker.start()
    job_id = await bench.enqueue("busy.job")
    await bench.until("attempt.started", job_id)
    bench.worker.drain(notice(bench, seconds=0.5))
    await bench.worker.stop()
    view = await bench.view(job_id)
    assert (view.state, view.counters.interrupts) == (State.READY, 1)
    assert bench.worker.abandoned == 0


@pytest.mark.parametrize("kind", ["deaf", "thread", "signal-only"])
async def test_a_body_that_does_not_end_is_abandoned_and_its_claim_left_to_run_out(kind: str) -> None:
    release, thread_release = asyncio.Event(), threading.Event()

    @job("deaf.job")
    async def deaf() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @job("thread.job")
    def thread() -> None:
        thread_release.wait(20)

    @job("signal-only.job", abort="signal")
    async def signal_only() -> None:
        await release.wait()

    bench = Bench([deaf, thread, signal_only])
    await bench.worker.start()
    worker_id = bench.worker.worker_id
    job_id = await bench.enqueue(f"{kind}.job", max_attempts=1)
    await bench.until("attempt.started", job_id)
    loop = asyncio.get_running_loop()
    began = loop.time()
    bench.worker.drain(notice(bench, seconds=0.5))
    await bench.worker.stop()
    assert loop.time() - began < 1.0
    assert bench.worker.phase is Phase.STOPPED
    assert bench.worker.abandoned == 1
    abandoned = bench.probe.of("worker.drain_abandoned", job_id=str(job_id))
    assert len(abandoned) == 1
    assert "DRAIN_SECONDS" in str(abandoned[0].facts["fix"])
    (row,) = await bench.driver.workers()
    assert row.closed_at is None
    assert (await bench.view(job_id)).state is State.RUNNING
    release.set()
    thread_release.set()
    await _until_done(bench, job_id, worker_id)


async def _until_done(bench: Bench, job_id: object, worker_id: object) -> None:
    """Whoever takes the abandoned claim over reports it as interrupted."""
    store = bench.driver._store  # type: ignore[attr-defined] # the store's own rows
    store.workers[worker_id].lease_until = store.workers[worker_id].started_at
    (reaped,) = await bench.driver.reap()
    assert reaped.outcome is OutcomeKind.INTERRUPTED
    (attempt,) = await bench.ledger(job_id)  # type: ignore[arg-type] # an id
    assert (attempt.cause, attempt.counted) == ("abandoned", False)


async def test_a_claim_in_flight_goes_back_at_once() -> None:
    driver = Flaky()
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        entered.set()
        await go_on.wait()

    @job("never.job")
    async def never() -> None:
        raise AssertionError

    bench = Bench([never], driver=driver)
    driver.hold["claim"] = hold
    job_id = await bench.enqueue("never.job")
    await bench.worker.start()
    await entered.wait()
    bench.worker.drain(notice(bench))
    go_on.set()
    await bench.worker.stop()
    view = await bench.view(job_id)
    assert (view.state, view.counters.attempt, view.counters.interrupts) == (State.READY, 0, 0)
    assert view.counters.claim_no == 1
    assert not await bench.ledger(job_id)


async def test_runs_whose_bodies_were_not_called_yet_go_back_at_once() -> None:
    ran: list[int] = []

    @job("crowd.job")
    async def crowd(n: int) -> None:
        ran.append(n)
        bench.worker.drain(notice(bench))
        await asyncio.sleep(0)

    driver = Flaky()
    bench = Bench([crowd], driver=driver)
    jobs = [await bench.enqueue("crowd.job", {"n": n}) for n in range(5)]
    await bench.worker.start()
    await bench.until("attempt.completed", jobs[0])
    await bench.worker.stop()
    assert ran == [0]
    for job_id in jobs[1:]:
        view = await bench.view(job_id)
        assert (view.state, view.counters.attempt, view.counters.interrupts) == (State.READY, 0, 0)
    assert driver.calls.count("release") == 1
    assert bench.worker.tally() == Tally(completed=1)


async def test_a_drain_that_lands_in_a_manual_stop_binds_its_deadline() -> None:
    seen: list[Reason | None] = []

    @job("long.job")
    async def long(ctx: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.signal.reason)

    bench = Bench([long])
    await bench.worker.start()
    job_id = await bench.enqueue("long.job")
    await bench.until("attempt.started", job_id)
    stop = asyncio.ensure_future(bench.worker.stop())
    while bench.worker.phase is not Phase.LEAVING:
        await asyncio.sleep(0)
    assert not seen
    bench.worker.drain(notice(bench, seconds=60))
    bench.worker.drain(notice(bench, seconds=0.4))
    await asyncio.wait_for(stop, 2)
    assert seen == [Reason.DRAIN]
    assert (await bench.view(job_id)).counters.interrupts == 1


async def test_a_budget_that_is_spent_already_counts_what_is_finished() -> None:
    @job("quick.job")
    async def quick() -> int:
        return 1

    bench = Bench([quick])
    await bench.worker.start()
    job_id = await bench.enqueue("quick.job")
    await bench.until("attempt.completed", job_id)
    bench.worker.drain(notice(bench, seconds=0))
    await bench.worker.stop()
    assert bench.worker.abandoned == 0
    assert (await bench.view(job_id)).state is State.DONE


async def test_a_cancel_during_a_drain_wins() -> None:
    @job("told.job", abort="signal")
    async def told(ctx: JobContext) -> None:
        await ctx.signal.wait()
        await go_on.wait()
        ctx.signal.raise_if_aborted()

    go_on = asyncio.Event()
    bench = Bench([told])
    await bench.worker.start()
    job_id = await bench.enqueue("told.job")
    await bench.until("attempt.started", job_id)
    bench.worker.drain(notice(bench))
    await bench.driver.cancel(job_id, reason="no")
    go_on.set()
    await bench.worker.stop()
    assert (await bench.view(job_id)).state is State.CANCELLED


async def test_the_runs_of_a_restarted_worker_are_not_born_aborted() -> None:
    seen: list[bool] = []

    @job("look.job")
    async def look(ctx: JobContext) -> None:
        seen.append(ctx.signal.aborted)

    bench = Bench([look])
    await bench.worker.start()
    bench.worker.drain(notice(bench))
    await bench.worker.stop()
    await bench.worker.start()
    job_id = await bench.enqueue("look.job")
    await bench.until("attempt.completed", job_id)
    await bench.worker.stop()
    assert seen == [False]


async def test_a_fleet_of_ten_drains_does_not_count_against_a_long_job() -> None:
    @job("long.job")
    async def long(ctx: JobContext) -> None:
        await ctx.signal.wait()
        ctx.signal.raise_if_aborted()

    bench = Bench([long], driver=MemoryDriver(), options=replace(QUICK, code_version="2"))
    job_id = await bench.enqueue("long.job", max_attempts=1)
    for deploy in range(10):
        await bench.worker.start()
        await bench.until("attempt.started", job_id, count=deploy + 1)
        bench.worker.drain(notice(bench))
        await bench.worker.stop()
    view = await bench.view(job_id)
    assert (view.state, view.counters.attempt, view.counters.interrupts) == (State.READY, 0, 10)


async def test_an_outcome_that_cannot_be_stored_by_the_deadline_is_abandoned_work() -> None:
    driver = Flaky()

    @job("quick.job")
    async def quick() -> int:
        return 1

    bench = Bench([quick], driver=driver)
    await bench.worker.start()
    driver.before["settle"] = DriverUnavailable("down", fix="wait")
    await bench.enqueue("quick.job")
    await bench.probe.wait("settle.failed")
    bench.worker.drain(notice(bench, seconds=0.5))
    await bench.worker.stop()
    assert bench.worker.abandoned == 1
    assert not bench.probe.of("worker.drain_abandoned")
    (row,) = await bench.driver.workers()
    assert row.closed_at is not None
    driver.before.clear()
    (reaped,) = await driver.inner.reap()
    assert reaped.outcome is OutcomeKind.INTERRUPTED
