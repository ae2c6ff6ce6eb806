"""What a run leaves behind: nothing that only the garbage collector could free, which costs a busy worker dearly."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.worker.roster import Run
from tests.roles.harness import Bench, working


@job("plain")
async def plain(ctx: JobContext) -> int:
    await asyncio.sleep(0)
    return ctx.attempt


@job("stepped", step_timeout=timedelta(minutes=1))
async def stepped(ctx: JobContext) -> int:
    one = await ctx.step.run("one", _one)
    ctx.log("half")
    one, other = await ctx.step.gather(ctx.step.run("two", _one), ctx.step.run("three", _one))
    return one + other


@job("threaded")
def threaded(ctx: JobContext) -> int:
    return ctx.attempt


async def _one() -> int:
    return 1


async def _done(bench: Bench, handles: Sequence[JobHandle[Any, Any]]) -> None:
    for handle in handles:
        for _ in range(5):
            await bench.until("attempt.completed", await bench.enqueue(handle.name))


async def test_a_run_that_has_ended_is_freed_at_once() -> None:
    handles = (plain, stepped, threaded)
    async with working(*handles) as bench:
        await _done(bench, handles)  # what is made once, is made
        gc.collect()
        gc.disable()
        try:
            await _done(bench, handles)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = Counter(type(each).__qualname__ for each in gc.garbage if isinstance(each, Run))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert left == Counter()
