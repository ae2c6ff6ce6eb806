"""Keeps what a body does to the loop's tasks inside the body: an exit in a child task, a cancel of tasks not its own.

asyncio lets `SystemExit` and `KeyboardInterrupt` of any task end the loop's run, and any code cancel any task. A task
factory wraps the tasks that bodies create, so that they fail with a stand-in, and makes the worker's own tasks refuse
to be cancelled by a body. What escapes it, like a callback's exit, is met where the loop is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any

# Set in the context of a body, inherited by every task it creates: the only way to know whose child a task is.
_BODY: ContextVar[object | None] = ContextVar("outlast_body", default=None)
_OWN_NAME = "outlast."  # what the names of our own tasks begin with; on a loop we share, the others are their owner's


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


class OwnTask(asyncio.Task[Any]):
    """A task that no body created. Of ours, a body cancels the one it runs in and no other."""

    body: object | None = None

    def cancel(self, msg: object = None) -> bool:
        """Cancel it, unless a body asks that it is none of the business of."""
        asking = _BODY.get()
        if asking is None or asking is self.body:
            return super().cancel(msg)
        factory = self.get_loop().get_task_factory()
        if not isinstance(factory, TaskFactory) or not self.get_name().startswith(factory.own):
            return super().cancel(msg)
        factory.on_refused(self.get_name())
        return False


class TaskFactory:
    """Makes the tasks of one loop, in front of the factory it had; `users` counts who wants it there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_refused: Callable[[str], object], own: str) -> None:
        self.on_refused = on_refused
        self.own = own
        self.users = 0
        self._loop = loop
        self._before = loop.get_task_factory()

    def __call__(self, on: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:  # noqa: ANN401 - asyncio's own types
        """Make a task."""
        context = options.get("context")
        is_child = _BODY.get() is not None or (context is not None and context.get(_BODY) is not None)
        if is_child and asyncio.iscoroutine(work):
            work = ContainedCoroutine(work)
        if self._before is not None:
            return self._before(on, work, **options)
        return asyncio.Task(work, loop=on, **options) if is_child else OwnTask(work, loop=on, **options)

    def leave(self) -> None:
        """Take it off the loop with its last user."""
        self.users -= 1
        if not self.users and self._loop.get_task_factory() is self:
            self._loop.set_task_factory(self._before)


def _stand_in(error: BaseException) -> BodyExit:
    return BodyExit(f"a task of the body raised {type(error).__name__}")


def enter_body(task: asyncio.Task[Any] | None = None) -> None:
    """Mark the current context as a body's, run by `task`; tasks made in it from now on are contained."""
    body = object()
    _BODY.set(body)
    if isinstance(task, OwnTask):
        task.body = body


def contain_tasks(
    loop: asyncio.AbstractEventLoop, *, on_refused: Callable[[str], object], own: str = _OWN_NAME
) -> Callable[[], None]:
    """Install the task factory on a loop that has none yet; gives the way to take it off again.

    `on_refused` hears the names of tasks that a body tried to cancel. Of the tasks that no body created, those whose
    names begin with `own` are out of a body's reach.
    """
    factory = loop.get_task_factory()
    if not isinstance(factory, TaskFactory):
        factory = TaskFactory(loop, on_refused, own)
        loop.set_task_factory(factory)
    factory.users += 1
    return factory.leave
