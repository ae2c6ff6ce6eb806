"""Runs a loop until a process's own coroutine is done, whatever else tries to end the loop's run.

The exit of a callback, or of a task that no task factory saw, leaves through the loop, and any code can stop it.
Neither is a reason for a process to end: the loop is entered again where it was left. Called by `shutdown`.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

# Hears what ended the loop's run, and the place it came from where that is known.
OnLeft = Callable[[str, str], object]


def run_until_done(
    loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, int], *, on_left: OnLeft
) -> asyncio.Task[int]:
    """Run `main` as a task and return it once it is done."""
    task = loop.create_task(main, name="outlast.main")
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        by, at = "stop", ""
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            by, at = type(error).__name__, _place(error)
        if not task.done():
            on_left(by, at)
    return task


@contextmanager
def closing(runner: asyncio.Runner, *, on_left: OnLeft) -> Iterator[None]:
    """Close the loop at the end of the context; what its last tasks raise then decides nothing any more."""
    try:
        yield
    finally:
        try:
            runner.close()
        except BaseException as error:  # noqa: BLE001 - an exit of a body's last callback is no exit code
            on_left(type(error).__name__, _place(error))


def _place(error: BaseException) -> str:
    """Say where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
