"""Keeps what a body's tasks raise inside the body: `SystemExit` in a child task would leave through the event loop.

asyncio lets `SystemExit` and `KeyboardInterrupt` of any task end the loop's run, and with it the worker and all its
other jobs. A task factory wraps the tasks that bodies create, and only those, so that they fail with a stand-in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any

# Set in the context of a body, inherited by every task it creates: the only way to know whose child a task is.
_IN_BODY: ContextVar[bool] = ContextVar("outlast_in_body", default=False)


class BodyExit(Exception):
    """Stands in for the `SystemExit` or `KeyboardInterrupt` of a child task; its cause is the original."""


class ContainedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose exits are failures. It delegates, so that cancelling it unstarted closes the one inside."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what debuggers read: cr_frame, cr_code, __name__
        return getattr(self._inner, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._inner.__await__())

    def send(self, value: object) -> Any:  # noqa: ANN401 - what the coroutine yields
        """Resume it."""
        try:
            return self._inner.send(value)
        except (SystemExit, KeyboardInterrupt) as exc:
            raise _stand_in(exc) from exc

    def throw(  # type: ignore[override] # the three-argument form is deprecated and never used by tasks
        self, error: BaseException, value: object = None, trace: TracebackType | None = None
    ) -> Any:  # noqa: ANN401 - what the coroutine yields
        """Raise in it."""
        del value, trace
        try:
            return self._inner.throw(error)
        except (SystemExit, KeyboardInterrupt) as exc:
            raise _stand_in(exc) from exc

    def close(self) -> None:
        """Close it."""
        self._inner.close()


def _stand_in(error: BaseException) -> BodyExit:
    return BodyExit(f"a task of the body raised {type(error).__name__}")


def enter_body() -> None:
    """Mark the current context as a body's; tasks made in it from now on are contained."""
    _IN_BODY.set(True)


def contain_tasks(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Install the task factory on a loop, in front of the one it has; gives the way to take it off again."""
    before = loop.get_task_factory()

    def make_task(on: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:  # noqa: ANN401 - asyncio's own types
        context = options.get("context")
        is_child = _IN_BODY.get() if context is None else context.get(_IN_BODY, False)
        contained = ContainedCoroutine(work) if is_child and asyncio.iscoroutine(work) else work
        if before is None:
            return asyncio.Task(contained, loop=on, **options)
        return before(on, contained, **options)

    loop.set_task_factory(make_task)

    def restore() -> None:
        if loop.get_task_factory() is make_task:
            loop.set_task_factory(before)

    return restore
