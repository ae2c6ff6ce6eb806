"""Calls a body and says how it ended: on the loop for `async def`, in a bounded thread pool for `def`.

Whatever a body raises, `SystemExit` and an exception whose text raises included, ends as a value: nothing leaves
through here. Who told the body to stop is not asked; that is the verdict's. Called by `run`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from ..domain.errors import OutlastError
from ..domain.verdict import Ended, Raised, Returned, Suspending, Unstorable
from ..jobs.client import Client, be_current
from ..jobs.context import JobContext
from ..jobs.exits import RetryAfter, Snooze, Terminal
from ..jobs.handle import JobHandle
from ..jobs.invoke import bind, encode_result
from ..lifecycle.tasks import start_task
from ..observability.logging import correlate
from .containment import enter_body
from .error_info import error_info, leaves
from .roster import body_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A body to call: the handle, the payload as stored, and what the body is told about its attempt.

    `now` gives the store's time as this process reckons it; `client` is what the body enqueues with, else the ambient
    one.
    """

    handle: JobHandle[Any, Any]
    job_id: str
    payload: str
    context: JobContext
    result_max_bytes: int
    now: Callable[[], datetime]
    client: Client | None = None


def begin(call: Call, *, pool: Executor) -> asyncio.Future[Ended]:
    """Start the body; the future gives how it ended and never raises, unless cancelled before the body began."""
    if call.handle.is_sync:
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(pool, context.run, _run_sync, call)
    return start_task(_run_async(call), name=body_name(call.job_id))


def ended_of(body: asyncio.Future[Ended]) -> Ended:
    """Read how a body ended off its future."""
    if body.cancelled():
        return Raised(error=error_info(asyncio.CancelledError("cancelled before it began")))
    if (error := body.exception()) is not None:
        return Raised(error=error_info(error))
    return body.result()


async def _run_async(call: Call) -> Ended:
    enter_body(asyncio.current_task())
    _enter(call)
    try:
        bound = bind(call.handle, call.payload, call.context)
        value = await cast("Awaitable[object]", call.handle.body(*bound.args, **bound.kwargs))
    except BaseException as exc:  # noqa: BLE001 - a body may raise anything, and only its own attempt ends
        return _how_it_ended(exc, call)
    return _returned(value, call)


def _run_sync(call: Call) -> Ended:
    enter_body()
    _enter(call)
    try:
        bound = bind(call.handle, call.payload, call.context)
        value = call.handle.body(*bound.args, **bound.kwargs)
    except BaseException as exc:  # noqa: BLE001 - as above; the pool's thread goes on
        return _how_it_ended(exc, call)
    return _returned(value, call)


def _enter(call: Call) -> None:
    """Name the job on what its body logs, and give the body its client; the context is the body's own."""
    correlate(job_id=call.job_id, job=call.context.name, attempt=call.context.attempt)
    if call.client is not None:
        be_current(call.client)


def _returned(value: object, call: Call) -> Ended:
    try:
        return Returned(result=encode_result(call.handle, value, max_bytes=call.result_max_bytes))
    except BaseException as exc:  # noqa: BLE001 - serialisers run the author's code
        return Unstorable(error=error_info(exc))


def _how_it_ended(error: BaseException, call: Call) -> Ended:
    """Sort an error: a snooze wherever it is found, else a failure with what it says about retrying."""
    inside = tuple(leaves(error))
    for leaf in inside:
        if isinstance(leaf, Snooze):
            return Suspending(delay=leaf.delay)
    waits = [leaf.delay_from(call.now()) for leaf in inside if isinstance(leaf, RetryAfter)]
    return Raised(
        error=error_info(error),
        is_terminal=any(_is_terminal(leaf, call) for leaf in (error, *inside)),
        retry_after=max(waits, default=None),
    )


def _is_terminal(error: BaseException, call: Call) -> bool:
    """Say whether the error says itself that no retry can help, or the job type does."""
    if isinstance(error, OutlastError):
        return error.terminal or isinstance(error, tuple(call.handle.policy.terminal_on))
    return isinstance(error, (Terminal, *call.handle.policy.terminal_on))
