"""Runs the function of a step: on the loop when it is `async def`, in the worker's threads when it is not.

Called by `ctx.step.run`; gives what the function gives, or raises what it raises.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from contextvars import copy_context
from datetime import timedelta
from typing import Any, cast

from ..domain.errors import StepTimeout
from ..domain.step import StepKind
from .recorder import Recorder


def run_function(
    recorder: Recorder, name: str, call: Callable[[], object], held: ExitStack | None
) -> Coroutine[Any, Any, object]:
    """Call a step's function and give its value: on the loop where there is no `held`, else in a thread.

    One in a thread cannot be stopped: a cancellation of the run is held back in `held`, so that what it did can be
    recorded, and after a `step_timeout` it runs on alone.

    Raises:
        StepTimeout: it took longer than `step_timeout`.
    """
    limit = recorder.step_timeout
    return _run(recorder, name, call, held) if limit is None else _run_within(limit, recorder, name, call, held)


async def _run_within(
    limit: timedelta, recorder: Recorder, name: str, call: Callable[[], object], held: ExitStack | None
) -> object:
    scope = recorder.tools.timers.within(limit.total_seconds())
    try:
        async with scope:
            return await _run(recorder, name, call, held)
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise step_timed_out(f"step {name!r}", limit.total_seconds(), name) from exc


async def _run(recorder: Recorder, name: str, call: Callable[[], object], held: ExitStack | None) -> object:
    try:
        with recorder.inside(name), recorder.tools.traced(name, StepKind.RUN):
            value = call() if held is None else await _in_thread(recorder, call, held)
            if inspect.isawaitable(value):
                if held is not None:
                    held.close()
                value = await cast("Awaitable[object]", value)
            return value
    except BaseException as error:
        recorder.stop.note(error)
        raise


def step_timed_out(what: str, seconds: float, name: str) -> StepTimeout:
    """Give the error of a step that passed its `step_timeout`."""
    return StepTimeout(
        f"{what} took longer than its step_timeout of {seconds:g} s",
        fix="do less in the step, or raise step_timeout",
        step=name,
    )


async def _in_thread(recorder: Recorder, call: Callable[[], object], held: ExitStack) -> object:
    held.enter_context(recorder.signal.in_store())
    loop = asyncio.get_running_loop()
    value, error = await loop.run_in_executor(recorder.tools.pool, copy_context().run, _ended, call)
    if error is not None:
        raise error
    return value


def _ended(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    """Give how a call ended as a value: not every exception can pass through a future."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again in the body
        return None, error
