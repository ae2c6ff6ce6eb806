"""Tasks of the driver's own that the first caller happens to start: made apart from that caller.

A task inherits the context it is made in. In a job's body that context names the job on every log line, and says that
the task is a child of the body's, which the body may cancel; what every caller shares must inherit neither. Called on
the running loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any


def start_apart(work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
    """Start a task in an empty context; whoever keeps it awaits it, and an error that ends it is told to the loop."""
    loop = asyncio.get_running_loop()
    # Not by `context=`: whose child a task is is read off the context that it is made in.
    apart = contextvars.Context()
    task = apart.run(lambda: loop.create_task(work, name=name))
    task.add_done_callback(_tell, context=apart)
    return task


def _tell(task: asyncio.Task[None]) -> None:
    """Say what ended a task, at once rather than when it is collected."""
    if not task.cancelled() and (error := task.exception()) is not None:
        told = {"message": f"the task {task.get_name()} ended with an error", "exception": error, "task": task}
        task.get_loop().call_exception_handler(told)
