"""The only place that makes tasks: each has a name, and an owner who awaits it.

Inside a `TaskGroup` the group is the owner; a task made by `start_task` is awaited by whoever keeps what it returns.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start_task(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Start a task on the running loop; the caller keeps it and awaits it."""
    return asyncio.get_running_loop().create_task(work, name=name)


def start_in(group: asyncio.TaskGroup, work: Coroutine[Any, Any, None], *, name: str) -> None:
    """Start a task that its group awaits."""
    group.create_task(work, name=name)


def start_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Start a task on another thread's loop; the caller waits for what it gives."""
    return asyncio.run_coroutine_threadsafe(work, loop)


async def first_of(*events: asyncio.Event, within: float | None = None) -> bool:
    """Wait until one of the events is set, at most `within` seconds; False when the time ran out first."""
    if any(event.is_set() for event in events):
        return True
    if len(events) == 1:
        return await _soon(events[0], within)
    waits = [start_task(_until(event), name="outlast.wait") for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


async def _soon(event: asyncio.Event, within: float | None) -> bool:
    """Wait for one event without a task of its own: a few turns of the loop less."""
    try:
        async with asyncio.timeout(within):
            return await event.wait()
    except TimeoutError:
        return event.is_set()


async def _until(event: asyncio.Event) -> None:
    await event.wait()
