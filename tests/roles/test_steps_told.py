"""Runs with steps that are cut, crash or lose a reply: what is recorded stands, and nothing recorded is done twice."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.snapshot import NewWorker
from app.domain.state import State
from app.domain.step import MAIN_BRANCH, NewStep, Place, StepKind
from app.domain.verdict import Reason
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import ClaimRequest, QueueShare
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.worker.run_signal import RunSignal
from tests.roles.harness import QUICK, Bench, Flaky, Gate, working

TICK = timedelta(milliseconds=30)
HOUR = timedelta(hours=1)


async def drained(bench: Bench) -> None:
    """Drain the worker as a SIGTERM does: its runs are told."""
    bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=5.0))
    await bench.worker.stop()


async def test_a_drain_in_the_middle_interrupts_and_the_next_worker_goes_on_from_the_record() -> None:
    calls: list[str] = []
    reached = asyncio.Event()

    @job("drained.job")
    async def body(ctx: JobContext) -> list[str]:
        async def first() -> str:
            calls.append("first")
            return "first"

        async def second() -> str:
            calls.append("second")
            reached.set()
            await ctx.signal.wait()
            return "second"

        made = [await ctx.step.run("first", first), await ctx.step.run("second", second)]
        return [*made, await ctx.step.run("third", lambda: "third")]

    driver = MemoryDriver()
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("drained.job")
        await reached.wait()
        await drained(bench)
        (cut,) = await bench.ledger(job_id)
        assert (cut.outcome, cut.counted, cut.step) == (OutcomeKind.INTERRUPTED, False, "third")
    async with working(body, driver=driver) as bench:
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '["first","second","third"]'
        facts = bench.probe.of("attempt.completed")[0].facts
        assert (facts["steps"], facts["replayed"]) == (3, 2)
    assert calls == ["first", "second"]


async def test_a_run_that_waits_is_suspended_also_while_its_worker_drains() -> None:
    reached = asyncio.Event()

    @job("drained.job")
    async def body(ctx: JobContext) -> None:
        async def told() -> None:
            reached.set()
            await ctx.signal.wait()

        await ctx.step.gather(ctx.step.sleep("nap", HOUR), ctx.step.run("told", told))

    driver = MemoryDriver()
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("drained.job")
        await reached.wait()
        await drained(bench)
        view = await bench.view(job_id)
        assert (view.state, [wait.name for wait in view.waiting_on]) == (State.SUSPENDED, ["nap"])
        run = await driver.run(job_id)
        assert run is not None
        assert [step.name for step in run.history.steps] == ["told"]
        assert await bench.ledger(job_id) == ()


async def test_a_body_whose_steps_are_all_recorded_completes_also_while_its_worker_drains() -> None:
    told = asyncio.Event()

    @job("drained.job")
    async def body(ctx: JobContext) -> int:
        number = await ctx.step.run("first", lambda: 1)
        if ctx.claim_no == 1:
            raise ConnectionError("once")
        return number + await ctx.step.run("second", ends_late, ctx)

    async def ends_late(ctx: JobContext) -> int:
        told.set()
        await ctx.signal.wait()
        return 1

    driver = MemoryDriver()
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("drained.job")
        await told.wait()
        await drained(bench)
        view = await bench.view(job_id)
        assert (view.state, view.result, view.late) == (State.DONE, "2", True)


async def test_a_timeout_cuts_a_step_on_the_loop_and_waits_for_one_in_a_thread() -> None:
    release = threading.Event()

    @job("loop.job", timeout=TICK, retry=RetryPolicy(max_attempts=1))
    async def on_loop(ctx: JobContext) -> None:
        await ctx.step.run("slow", asyncio.sleep, 60)

    @job("thread.job", timeout=TICK)
    async def in_thread(ctx: JobContext) -> None:
        await ctx.step.run("slow", blocking, ctx)
        await ctx.step.run("next", str)

    def blocking(ctx: JobContext) -> str:
        if ctx.claim_no == 1:
            release.wait(10)
        return "recorded"

    async with working(on_loop, in_thread) as bench:
        cut = await bench.enqueue("loop.job", max_attempts=1)
        await bench.until("attempt.dead", cut)
        (attempt,) = await bench.ledger(cut)
        assert attempt.error is not None
        assert (attempt.error.code, attempt.step) == ("JOB_TIMEOUT", "slow")
        kept = await bench.enqueue("thread.job")
        await bench.until("attempt.started", kept)
        await asyncio.sleep(0.05)  # past the timeout, within the grace
        release.set()
        await bench.until("attempt.retried", kept)
        run = await bench.driver.run(kept)
        assert run is not None
        assert [step.value for step in run.history.steps][:1] == ['"recorded"']


async def crashed(driver: MemoryDriver, job_id: JobId, name: str, *, steps: tuple[str, ...]) -> None:
    """Leave the job to a worker that records some steps and vanishes."""
    about = NewWorker(
        host="host-x",
        pid=1,
        code_version="1.0.0",
        queues=("default",),
        concurrency=1,
        lease_ms=50,
        boot_id=uuid4(),
    )
    worker_id = await driver.register_worker(about)
    share = QueueShare(queue="default", room=1)
    request = ClaimRequest(worker_id=worker_id, shares=(share,), names=frozenset({name}), room=1)
    (claimed,) = await driver.claim(request)
    assert claimed.token.job_id == job_id
    for number, step in enumerate(steps):
        new = NewStep(name=step, kind=StepKind.RUN, place=Place(MAIN_BRANCH, number), value=f'"{step}"')
        assert await driver.record_step(claimed.token, new)


@pytest.mark.parametrize("recorded", [(), ("first",), ("first", "second")])
async def test_a_crash_between_steps_loses_nothing_that_was_recorded(recorded: tuple[str, ...]) -> None:
    calls: list[str] = []

    @job("crash.job")
    async def body(ctx: JobContext) -> list[str]:
        def done(name: str) -> str:
            calls.append(name)
            return name

        return [await ctx.step.run("first", done, "first"), await ctx.step.run("second", done, "second")]

    driver = MemoryDriver()
    bench = Bench([body], driver=driver)
    await driver.open()
    job_id = await bench.enqueue("crash.job")
    await crashed(driver, job_id, "crash.job", steps=recorded)
    async with working(body, driver=driver) as bench:
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.result, view.counters.crashes) == ('["first","second"]', 1)
    assert calls == [name for name in ("first", "second") if name not in recorded]


async def test_a_record_whose_reply_was_lost_is_made_once() -> None:
    calls: list[int] = []

    @job("lost.job")
    async def body(ctx: JobContext) -> int:
        def charge() -> int:
            calls.append(1)
            return 1

        return await ctx.step.run("charge", charge)

    driver = Flaky()
    driver.after["record_step"] = DriverUnavailable("the reply was lost", fix="none")
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("lost.job")
        while driver.calls.count("record_step") < 2:
            await asyncio.sleep(0.01)
        driver.after.clear()
        await bench.until("attempt.completed", job_id)
        run = await driver.inner.run(job_id)
        assert run is not None
        assert (calls, [step.name for step in run.history.steps]) == ([1], ["charge"])


async def test_a_suspension_whose_reply_was_lost_is_made_once() -> None:
    @job("lost.job")
    async def body(ctx: JobContext) -> int:
        await ctx.step.sleep("nap", TICK)
        return await ctx.step.call("one", child, {})

    @job("child.job")
    async def child() -> int:
        return 1

    driver = Flaky()
    driver.after["settle"] = DriverUnavailable("the reply was lost", fix="none")
    async with working(body, child, driver=driver) as bench:
        job_id = await bench.enqueue("lost.job")
        await bench.probe.wait("settle.failed", count=3)
        driver.after.clear()
        await bench.until("attempt.completed", job_id)
        run = await driver.inner.run(job_id)
        assert run is not None
        assert len(run.children) == 1


async def test_a_cancel_while_a_step_is_being_recorded_waits_for_the_record() -> None:
    driver = Flaky()
    gate = Gate(driver, "record_step")
    signals: list[RunSignal] = []

    @job("gated.job")
    async def body(ctx: JobContext) -> None:
        assert isinstance(ctx.signal, RunSignal)
        signals.append(ctx.signal)
        await ctx.step.run("first", lambda: 1)

    # Told and cancelled at an instant of the test's; what is closed after the grace alone is another test's.
    async with working(body, driver=driver, options=replace(QUICK, cancel_grace=timedelta(seconds=30))) as bench:
        job_id = await bench.enqueue("gated.job")
        await gate.entered.wait()
        (signal,) = signals
        signal.fire(Reason.TIMEOUT, cancel_at=0.0)
        while not signal._is_cancel_due:
            await asyncio.sleep(0)
        assert driver.calls.count("record_step") == 1
        gate.go_on.set()
        await bench.probe.wait("attempt.completed", job_id=str(job_id))
        run = await driver.inner.run(job_id)
        assert run is not None
        assert [step.name for step in run.history.steps] == ["first"]
        assert (await bench.view(job_id)).late


async def test_a_cancel_of_a_running_run_ends_it_at_its_next_step() -> None:
    reached = asyncio.Event()
    after: list[int] = []

    @job("cancelled.job", abort="signal")
    async def body(ctx: JobContext) -> None:
        async def first() -> None:
            reached.set()
            await ctx.signal.wait()

        await ctx.step.run("first", first)
        await ctx.step.run("second", after.append, 1)

    async with working(body) as bench:
        job_id = await bench.enqueue("cancelled.job")
        await reached.wait()
        await bench.driver.cancel(job_id, reason="no longer needed")
        await bench.until("attempt.superseded", job_id)
        assert after == []
        assert (await bench.view(job_id)).state is State.CANCELLED
