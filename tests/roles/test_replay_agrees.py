"""What a check says of a run is what a worker then makes of it, change by change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.drivers.memory.driver import MemoryDriver
from app.drivers.reading import ListQuery
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.jobs.registry import Registry
from app.replay.attempt import ReplayOptions
from app.replay.check import Check, Finding, Verdict
from app.replay.export import Exporter
from app.replay.trace import Trace
from tests.roles.harness import QUICK, Bench, working
from tests.roles.test_steps_runs import event
from tests.support.processes import eventually

HOUR = timedelta(hours=1)
NAME = "ship.job"
Body = Callable[[JobContext], Awaitable[Any]]


async def text() -> str:
    return "text"


async def number() -> int:
    return 1


async def approval(ctx: JobContext, key: str = "7") -> None:
    await ctx.step.wait_for_event("approval", "order.approved", key=key)


async def same(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text))
    await approval(ctx)
    await ctx.step.run("send", text)


async def another_key(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text))
    await approval(ctx, key="8")


async def a_step_more_at_the_end(ctx: JobContext) -> None:
    await same(ctx)
    await ctx.step.run("bill", text)


async def a_branch_more_at_the_end(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text), ctx.step.run("c", text))
    await approval(ctx)


async def longer_branches(ctx: JobContext) -> None:
    async def two(name: str) -> None:
        await ctx.step.run(name, text)
        await ctx.step.run(f"{name} again", text)

    await ctx.step.run("pack", text)
    await ctx.step.gather(two("a"), two("b"))
    await approval(ctx)


async def a_step_in_front(ctx: JobContext) -> None:
    await ctx.step.run("weigh", text)
    await same(ctx)


async def a_sleep_in_front(ctx: JobContext) -> None:
    await ctx.step.sleep("rest", HOUR)
    await same(ctx)


async def branches_in_front(ctx: JobContext) -> None:
    await ctx.step.gather(ctx.step.run("weigh", text), ctx.step.run("label", text))
    await same(ctx)


async def a_step_in_between(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.run("weigh", text)
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text))
    await approval(ctx)


async def a_step_before_the_wait(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text))
    await ctx.step.run("ask", text)
    await approval(ctx)


async def another_name(ctx: JobContext) -> None:
    await ctx.step.run("wrap", text)
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text))
    await approval(ctx)


async def another_kind(ctx: JobContext) -> None:
    await ctx.step.sleep("pack", timedelta())
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text))
    await approval(ctx)


async def another_type(ctx: JobContext) -> None:
    await ctx.step.run("pack", number)
    await ctx.step.gather(ctx.step.run("a", text), ctx.step.run("b", text))
    await approval(ctx)


async def swapped_branches(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.gather(ctx.step.run("b", text), ctx.step.run("a", text))
    await approval(ctx)


async def a_branch_less(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.gather(ctx.step.run("a", text))
    await approval(ctx)


async def branches_one_by_one(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)
    await ctx.step.run("a", text)
    await ctx.step.run("b", text)
    await approval(ctx)


async def an_early_end(ctx: JobContext) -> None:
    await ctx.step.run("pack", text)


async def no_steps(ctx: JobContext) -> None:
    del ctx


FITS = (same, another_key, a_step_more_at_the_end, a_branch_more_at_the_end, longer_branches)
HELD = (
    a_step_in_front, a_sleep_in_front, branches_in_front, a_step_in_between, a_step_before_the_wait, another_name,
    another_kind, another_type, swapped_branches, a_branch_less, branches_one_by_one, an_early_end, no_steps,
)  # fmt: skip


def declared(body: Body) -> JobHandle[Any, Any]:
    @job(NAME)
    async def handle(ctx: JobContext) -> None:
        await body(ctx)

    return handle


async def traced(driver: MemoryDriver) -> Trace:
    """Give the trace of the one job there is."""
    page = await Exporter(driver, ListQuery()).page()
    assert page is not None
    (trace,) = page
    return trace


async def checked(trace: Trace, body: Body) -> Finding:
    """Check a trace, in a thread: a replay has a loop of its own."""
    check = Check(Registry([declared(body)]), ReplayOptions(seconds=5, result_max_bytes=1000))
    return await asyncio.to_thread(check.check, trace)


async def made_of(bench: Bench) -> str:
    """Give what the next attempt becomes."""
    ends = ("attempt.held", "attempt.completed", "attempt.suspended")
    await eventually(lambda: any(bench.probe.of(end) for end in ends), "the attempt has ended")
    return next(end for end in ends if bench.probe.of(end))


@pytest.mark.parametrize("body", [*FITS, *HELD], ids=lambda body: body.__name__)
async def test_a_check_says_what_a_worker_will_make_of_a_run(body: Body) -> None:
    driver = MemoryDriver()
    async with working(declared(same), driver=driver) as bench:
        job_id = await bench.enqueue(NAME)
        await bench.until("attempt.suspended", job_id)
    waiting = await checked(await traced(driver), body)
    await driver.emit(event("order.approved", "7", '{"by":"ann"}'))
    finding = await checked(await traced(driver), body)
    async with working(declared(body), driver=driver, options=replace(QUICK, code_version="2.0.0")) as bench:
        became = await made_of(bench)
        view = await bench.view(job_id)
    expected = Verdict.FITS if body in FITS else Verdict.HELD
    assert (waiting.verdict, finding.verdict, became == "attempt.held") == (expected, expected, body in HELD)
    if body in HELD:
        assert finding.message == view.state_reason
