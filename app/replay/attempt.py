"""Replays one run: calls its body with steps that answer from the record, up to the first that is not recorded.

Nothing of a step is done again, nothing is stored, and nothing reaches outside; an asyncio loop of its own ends with
the replay, and whatever the body has begun with it. Called by `check`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, cast

from ..drivers.protocol import JobDriver
from ..drivers.runs import RunStore
from ..jobs.admission import wall_clock
from ..jobs.client import Client, be_current
from ..jobs.context import JobContext, context_of
from ..jobs.handle import JobHandle
from ..jobs.invoke import bind, encode_result
from ..steps.recorder import Recorder
from ..steps.tools import Tools
from ..steps.values import Values
from .limit import OverTimeError, alarm
from .outside import Refusals, nothing_outside
from .stand_ins import CalmSignal, Desk, NoStore, RecordedRun, Wall
from .trace import Trace

_GRACE_SECONDS = 0.5  # from the end of the time to the alarm: a body that awaits ends by itself in between


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What a replay may take: `seconds` for each run, and the largest result that code may give."""

    seconds: float = 5.0
    result_max_bytes: int


@dataclass(slots=True)
class Replayed:
    """How a replay ended: what the steps made of it, and what the body raised, if anything.

    `result` is the JSON text of what a body that came to its end returned. Without a recorder it never began.
    """

    refusals: Refusals
    recorder: Recorder | None = None
    error: BaseException | None = None
    is_over_time: bool = False
    result: str | None = None


def replay(handle: JobHandle[Any, Any], trace: Trace, options: ReplayOptions) -> Replayed:
    """Call the `async def` body of a run whose payload fits, on this thread; what it prints goes to stderr."""
    replayed = Replayed(Refusals())
    try:
        with (
            contextlib.redirect_stdout(sys.stderr),
            nothing_outside(replayed.refusals),
            alarm(options.seconds + _GRACE_SECONDS),
            asyncio.Runner() as runner,
        ):
            runner.run(_replay(replayed, handle, trace, options), context=copy_context())
    except OverTimeError as error:  # met where the loop waited for a thread that the body had begun
        replayed.error, replayed.is_over_time = replayed.error or error, True
    return replayed


async def _replay(replayed: Replayed, handle: JobHandle[Any, Any], trace: Trace, options: ReplayOptions) -> None:
    loop, now = asyncio.get_running_loop(), wall_clock()
    loop.set_exception_handler(lambda *_: None)  # what a replay cuts off has nothing to say
    with ThreadPoolExecutor(1) as pool:  # for steps that are not recorded, which are never called: it starts no thread
        wall, job = Wall(), trace.claimed(now)
        tools = Tools(
            store=cast("RunStore", RecordedRun(trace.history, replayed.refusals)),
            pool=pool,
            values=Values(max_bytes=options.result_max_bytes),
            monotonic=loop.time,
        )
        recorder = Recorder(tools, job, signal=wall, task=asyncio.current_task(), store_now=lambda: now)
        wall.recorder = replayed.recorder = recorder
        be_current(Client(cast("JobDriver", NoStore())))
        await _call(replayed, recorder, handle, context_of(job, signal=CalmSignal(), desk=Desk(recorder)), options)


async def _call(
    replayed: Replayed, recorder: Recorder, handle: JobHandle[Any, Any], context: JobContext, options: ReplayOptions
) -> None:
    """Call the body and keep how it ended; raises nothing but the cancellation of the whole check."""
    task, scope = asyncio.current_task(), asyncio.timeout(options.seconds)
    try:
        args, kwargs = bind(handle, recorder.job.payload, context)
        async with scope:
            value = await cast("Awaitable[object]", handle.body(*args, **kwargs))
            await recorder.finish()
        if not recorder.main.is_suspended:  # else the body has swallowed what ended it
            replayed.result = encode_result(handle, value, max_bytes=options.result_max_bytes)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        replayed.error = error
        replayed.is_over_time = isinstance(error, OverTimeError) or scope.expired()
