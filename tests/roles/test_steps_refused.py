"""Bodies that catch what a step raised since the run was told to stop: a deploy is never taken for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.state import State
from app.domain.verdict import Reason
from app.drivers.memory.driver import MemoryDriver
from app.jobs.context import JobContext
from app.jobs.exits import RetryAfter, Snooze
from app.jobs.handle import job
from app.worker.run_signal import RunSignal
from tests.roles.harness import Bench, working
from tests.roles.test_steps_runs import event
from tests.roles.test_steps_told import drained
from tests.roles.test_worker_postgres import at

HOUR = timedelta(hours=1)
ONCE = RetryPolicy(max_attempts=1)
Body: TypeAlias = Callable[[JobContext], Awaitable[str]]
Worked: TypeAlias = Callable[..., AbstractAsyncContextManager[Bench]]


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def worked(request: pytest.FixtureRequest) -> Worked:
    """Give what makes a worker over one store, the same each time."""
    if request.param == "memory":
        return partial(working, driver=MemoryDriver())
    return partial(at, request.getfixturevalue("database_url"))


def is_told(ctx: JobContext) -> bool:
    """Say whether this is the attempt that is told to stop."""
    return ctx.claim_no == 1


async def until_told(ctx: JobContext) -> None:
    if is_told(ctx):
        reached[0].set()
        await ctx.signal.wait()


reached: list[asyncio.Event] = [asyncio.Event()]


async def pays(ctx: JobContext) -> str:
    await until_told(ctx)
    return await ctx.step.run("pay", str, "paid")


async def stops_inside(ctx: JobContext) -> str:
    await until_told(ctx)
    ctx.signal.raise_if_aborted()
    return "paid"


async def returns(ctx: JobContext) -> str:
    try:
        return await pays(ctx)
    except Exception:  # noqa: BLE001 - what many bodies do
        return "declined"


async def raises(ctx: JobContext) -> str:
    try:
        return await pays(ctx)
    except Exception as error:
        raise ValueError("declined") from error


async def snoozes(ctx: JobContext) -> str:
    try:
        return await pays(ctx)
    except Exception as error:
        raise Snooze(HOUR) from error


async def retries_later(ctx: JobContext) -> str:
    try:
        return await pays(ctx)
    except Exception as error:
        raise RetryAfter(HOUR) from error


async def is_refused_inside(ctx: JobContext) -> str:
    try:
        return await ctx.step.run("pay", stops_inside, ctx)
    except Exception:  # noqa: BLE001 - as above
        return "declined"


async def is_refused_in_a_branch(ctx: JobContext) -> str:
    both = await ctx.step.gather(returns(ctx), ctx.step.run("beside", str, "beside"))
    return both[0]


async def is_refused_around_a_gather(ctx: JobContext) -> str:
    try:
        return (await ctx.step.gather(pays(ctx), ctx.step.run("beside", str, "beside")))[0]
    except Exception:  # noqa: BLE001 - as above
        return "declined"


async def is_refused_in_a_group(ctx: JobContext) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            paid = group.create_task(pays(ctx))
            group.create_task(ctx.step.run("beside", str, "beside"))
        return paid.result()
    except Exception:  # noqa: BLE001 - as above
        return "declined"


@pytest.mark.parametrize(
    "way",
    [
        returns,
        raises,
        snoozes,
        retries_later,
        is_refused_inside,
        is_refused_in_a_branch,
        is_refused_around_a_gather,
        is_refused_in_a_group,
    ],
)
async def test_a_step_refused_by_a_drain_interrupts_whatever_the_body_makes_of_it(worked: Worked, way: Body) -> None:
    @job("paying.job", retry=ONCE)
    async def body(ctx: JobContext) -> str:
        return await way(ctx)

    reached[0] = asyncio.Event()
    async with worked(body) as bench:
        job_id = await bench.enqueue("paying.job", max_attempts=1)
        await reached[0].wait()
        await drained(bench)
        (cut,) = await bench.ledger(job_id)
        assert cut.error is not None
        assert (cut.outcome, cut.counted, cut.error.code) == (OutcomeKind.INTERRUPTED, False, "ABORTED")
        assert (await bench.view(job_id)).state is State.READY
    async with worked(body) as bench:
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.result, view.counters.attempt, view.counters.interrupts) == ('"paid"', 1, 1)


@pytest.mark.postgres
async def test_a_transaction_left_by_a_drain_interrupts_too(database_url: str) -> None:
    @job("booking.job", retry=ONCE)
    async def body(ctx: JobContext) -> str:
        try:
            async with ctx.step.transaction("book"):
                await until_told(ctx)
                ctx.signal.raise_if_aborted()
        except Exception:  # noqa: BLE001 - as above
            return "not booked"
        return "booked"

    reached[0] = asyncio.Event()
    async with at(database_url, body) as bench:
        job_id = await bench.enqueue("booking.job", max_attempts=1)
        await reached[0].wait()
        await drained(bench)
        assert [(one.outcome, one.counted) for one in await bench.ledger(job_id)] == [(OutcomeKind.INTERRUPTED, False)]
    async with at(database_url, body) as bench:
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"booked"'


async def test_a_refused_branch_that_was_caught_does_not_wait_for_one_that_waits(worked: Worked) -> None:
    @job("paying.job", retry=ONCE)
    async def body(ctx: JobContext) -> str:
        paid, said = await ctx.step.gather(returns(ctx), ctx.step.wait_for_event("go", "pay.go", key="1"))
        return f"{paid}, {said}"

    reached[0] = asyncio.Event()
    async with worked(body) as bench:
        job_id = await bench.enqueue("paying.job", max_attempts=1)
        await reached[0].wait()
        await drained(bench)
        assert [one.outcome for one in await bench.ledger(job_id)] == [OutcomeKind.INTERRUPTED]
    async with worked(body) as bench:
        await bench.until("attempt.suspended", job_id)
        await bench.driver.emit(event("pay.go", "1", '"go"'))
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"paid, go"'


async def test_a_step_refused_by_a_timeout_fails_as_one(worked: Worked) -> None:
    @job("paying.job", retry=ONCE, abort="signal")
    async def body(ctx: JobContext) -> str:
        assert isinstance(ctx.signal, RunSignal)
        ctx.signal.fire(Reason.TIMEOUT)
        return await returns(ctx)

    reached[0] = asyncio.Event()
    async with worked(body) as bench:
        job_id = await bench.enqueue("paying.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        (attempt,) = await bench.ledger(job_id)
        assert attempt.error is not None
        assert (attempt.error.code, attempt.counted) == ("JOB_TIMEOUT", True)


@pytest.mark.parametrize("has_step", [False, True])
async def test_a_body_that_catches_its_own_signal_and_returns_is_done(worked: Worked, has_step: bool) -> None:
    @job("own.job", retry=ONCE)
    async def body(ctx: JobContext) -> str:
        if has_step:
            await ctx.step.run("first", str, "first")
        await until_told(ctx)
        try:
            ctx.signal.raise_if_aborted()
        except Exception:  # noqa: BLE001 - as above
            return "ended in order"
        return "not told"

    reached[0] = asyncio.Event()
    async with worked(body) as bench:
        job_id = await bench.enqueue("own.job")
        await reached[0].wait()
        await drained(bench)
        view = await bench.view(job_id)
        assert (view.state, view.result, view.late) == (State.DONE, '"ended in order"', True)


async def test_a_branch_that_fails_beside_one_that_waits_is_said_and_raised_once_none_waits(worked: Worked) -> None:
    calls: list[int] = []

    async def fails() -> None:
        calls.append(1)
        raise ConnectionError("no way there")

    @job("beside.job", retry=ONCE)
    async def body(ctx: JobContext) -> None:
        await ctx.step.gather(ctx.step.wait_for_event("go", "beside.go", key="1"), ctx.step.run("charge", fails))

    async with worked(body) as bench:
        job_id = await bench.enqueue("beside.job", max_attempts=1)
        await bench.until("attempt.suspended", job_id)
        (said,) = bench.probe.of("branch.failed")
        facts = {name: said.facts[name] for name in ("job_id", "job", "error", "code", "branch")}
        assert facts == {
            "job_id": str(job_id),
            "job": "beside.job",
            "error": "ConnectionError",
            "code": None,
            "branch": "0.1",
        }
        assert "no way there" not in str(said.facts)
        await bench.driver.emit(event("beside.go", "1", "1"))
        await bench.until("attempt.dead", job_id)
        (attempt,) = await bench.ledger(job_id)
        assert attempt.error is not None
        assert (attempt.error.type, attempt.step, len(calls)) == ("ConnectionError", "charge", 2)
        assert len(bench.probe.of("branch.failed")) == 1
