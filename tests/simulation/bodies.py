"""The bodies of simulated jobs: each start does what the next act of its job's script says, and is put on record.

Whether it heeds its signal, swallows its cancellation, fails in any way there is or takes its process down: after the
script is over it finishes, so that every world comes to rest.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from datetime import timedelta
from typing import Protocol

from app.jobs import JobContext, RetryAfter, Snooze, Terminal, job
from app.jobs.handle import JobHandle
from tests.simulation.link import REFUSED_RESULT
from tests.simulation.plan import RETRIES, Act


class Stage(Protocol):
    """What a body needs of its machine."""

    def act_of(self, ctx: JobContext) -> Act:
        """Give what this start is to do."""
        ...

    def note(self, step: str, ctx: JobContext, what: str = "") -> None:
        """Put on record what the body goes through."""
        ...

    def crash(self) -> None:
        """Take the machine down."""
        ...


STAGE: ContextVar[Stage] = ContextVar("simulated_stage")


_SHORT = 0.02
_NAP = timedelta(milliseconds=50)
NEWS = "sim.news"  # the event that runs with steps wait for, by their job's id


class Broken(Exception):
    """A failure like any other."""


async def play(ctx: JobContext) -> str:
    """Do what this start is to do."""
    stage = STAGE.get()
    act = stage.act_of(ctx)
    stage.note("begin", ctx, f"{ctx.name} {act.way}")
    ear = asyncio.ensure_future(_listen(stage, ctx))
    try:
        given = await (_in_steps if ctx.name == "sim.steps" else _perform)(act, ctx)
    except BaseException as exc:
        stage.note("end", ctx, type(exc).__name__)
        raise
    else:
        stage.note("end", ctx, "returned")
        return given
    finally:
        ear.cancel()


@job("sim.async", retry=RETRIES)
async def on_loop(ctx: JobContext) -> str:
    """A body that may be cancelled."""
    return await play(ctx)


@job("sim.signal", retry=RETRIES, abort="signal")
async def on_signal(ctx: JobContext) -> str:
    """A body that is only told."""
    return await play(ctx)


@job("sim.sync", retry=RETRIES)
def in_thread(ctx: JobContext) -> str:
    """A body in a thread: it takes its time when it has done everything, and never looks at its signal."""
    stage = STAGE.get()
    act = stage.act_of(ctx)
    stage.note("sync", ctx)
    match act.way:
        case "fail" | "stubborn" | "swallow":
            raise Broken
        case "terminal":
            raise Terminal
        case "snooze":
            raise Snooze(timedelta(seconds=act.seconds + 0.01))
        case "exit":
            raise SystemExit(1)
        case _:
            return f"claim {ctx.claim_no}"


@job("sim.steps", retry=RETRIES, step_timeout=timedelta(seconds=5))
async def in_steps(ctx: JobContext) -> str:
    """A body with steps: what is recorded of them is on record, and so is each time that one is done."""
    return await play(ctx)


HANDLES: tuple[JobHandle[object, object], ...] = (on_loop, on_signal, in_thread, in_steps)  # type: ignore[assignment] # any payload


async def _listen(stage: Stage, ctx: JobContext) -> None:
    stage.note("told", ctx, (await ctx.signal.wait()).value)


async def _in_steps(act: Act, ctx: JobContext) -> str:
    """Do it between steps of every kind that needs no other job."""
    await ctx.step.run("first", _effect, ctx, "first")
    await ctx.step.sleep("nap", _NAP)
    ctx.log(f"claim {ctx.claim_no}")
    await ctx.step.gather(
        ctx.step.wait_for_event("news", NEWS, key=str(ctx.id), timeout=4 * _NAP),
        ctx.step.run("beside", _effect, ctx, "beside"),
    )
    given = await _perform(act, ctx)
    await ctx.step.run("last", _effect, ctx, "last")
    return given


async def _effect(ctx: JobContext, name: str) -> str:
    STAGE.get().note("effect", ctx, name)
    await asyncio.sleep(_SHORT / 2)
    return name


async def _perform(act: Act, ctx: JobContext) -> str:
    match act.way:
        case "heed":
            await _until_told(ctx, act.seconds)
            ctx.signal.raise_if_aborted()
        case "swallow" | "stubborn":
            await _whatever_comes(act.seconds)
            if act.way == "stubborn":
                raise Broken
        case "spawn":
            async with asyncio.TaskGroup() as group:
                for part in (0.3, 0.6, 1.0):
                    group.create_task(asyncio.sleep(part * act.seconds))
        case _:
            await asyncio.sleep(act.seconds)
            _give_up(act, ctx)
    return {"refused": REFUSED_RESULT, "unstorable": "\udc80"}.get(act.way, f"claim {ctx.claim_no}")


def _give_up(act: Act, ctx: JobContext) -> None:
    match act.way:
        case "fail":
            raise Broken
        case "terminal":
            raise Terminal
        case "retry_after":
            raise RetryAfter(timedelta(seconds=act.seconds))
        case "snooze":
            raise Snooze(timedelta(seconds=act.seconds + 0.01))
        case "exit":
            raise SystemExit(1)
        case "unstorable" if act.seconds < _SHORT:
            raise Broken("\0\udc80" * 100)
        case "poison":
            STAGE.get().crash()
        case _:
            pass


async def _until_told(ctx: JobContext, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ctx.signal.wait()
    except TimeoutError:
        return


async def _whatever_comes(seconds: float) -> None:
    """Run on for so long, also when cancelled."""
    until = asyncio.get_running_loop().time() + seconds
    while (left := until - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
