"""A process that a test can kill or hold: everything it runs stops at once, in the middle of whatever it does.

The coroutines of a machine's tasks are carried by wrappers. Those of a dead one are never resumed again, so that no
`finally` and no `except` of a body runs, as when a process is gone; those of one on hold go on when it is let go.
Threads cannot be stopped: a plain function that runs in one goes on to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from ..lifecycle.tasks import start_task

T = TypeVar("T")

_MACHINE: ContextVar[Machine | None] = ContextVar("outlast_test_machine", default=None)


class Machine:
    """One process. What is started with `run`, and all it starts, is part of it."""

    def __init__(self) -> None:
        self.is_dead = False
        self.is_held = False
        self._held: list[asyncio.Future[None]] = []
        self._graves: list[asyncio.Future[None]] = []
        self.context: Context = copy_context()
        self.context.run(_MACHINE.set, self)

    @property
    def is_up(self) -> bool:
        """Say whether it runs: neither dead nor on hold."""
        return not (self.is_dead or self.is_held)

    def run(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run something as a part of this machine; the caller keeps the task and awaits it while the machine is up."""
        return self.context.copy().run(partial(start_task, work, name=name))

    async def die(self) -> None:
        """Resume nothing any more; does not return to whoever calls it on this machine."""
        self.is_dead = True
        grave: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._graves.append(grave)
        await grave

    def revive(self) -> None:
        """Go on, once nobody looks any more, so that all can be ended in order; who died is cancelled."""
        self.is_dead = False
        for grave in self._graves:
            grave.cancel()
        self.let_go()

    def hold(self) -> None:
        """Resume nothing until let go."""
        self.is_held = True

    def let_one_go(self, gate: asyncio.Future[None]) -> None:
        """Let go whoever waits at a gate, and nobody else who was stopped before."""
        self.is_held = False
        if not gate.done():
            gate.set_result(None)

    def let_go(self) -> None:
        """Go on."""
        self.is_held = False
        held, self._held = self._held, []
        for future in held:
            if not future.done():
                future.set_result(None)

    def pause(self) -> asyncio.Future[None]:
        """Give what a task that is not to go on waits for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(future)
        return future


class Carried(Coroutine[Any, Any, Any]):
    """A coroutine of a machine: resumed only while the machine runs."""

    def __init__(self, inner: Coroutine[Any, Any, Any], machine: Machine) -> None:
        self._inner = inner
        self._machine = machine
        self._kept: BaseException | None = None
        self._is_kept = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what debuggers read: cr_frame, cr_code, __name__
        return getattr(self._inner, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._inner.__await__())

    def send(self, value: object) -> Any:  # noqa: ANN401 - what the coroutine yields
        """Resume it."""
        return self._step(None, value)

    def throw(  # type: ignore[override] # the three-argument form is deprecated and never used by tasks
        self, error: BaseException, value: object = None, trace: TracebackType | None = None
    ) -> Any:  # noqa: ANN401 - what the coroutine yields
        """Raise in it."""
        del value, trace
        return self._step(error, None)

    def close(self) -> None:
        """Close it."""
        self._inner.close()

    def _step(self, error: BaseException | None, value: object) -> Any:  # noqa: ANN401 - what the coroutine yields
        if self._machine.is_dead or self._machine.is_held:
            self._kept = error if error is not None or not self._is_kept else self._kept
            self._is_kept = True
            pause = self._machine.pause()
            pause._asyncio_future_blocking = True  # noqa: SLF001 - how a coroutine tells its task what it waits for
            return pause
        if self._is_kept:
            error, self._kept, self._is_kept = error or self._kept, None, False
        return self._inner.send(value) if error is None else self._inner.throw(error)


class Factory:
    """Makes the tasks of one loop, in front of the factory it had."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before = loop.get_task_factory()

    def __call__(self, on: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:  # noqa: ANN401 - asyncio's own types
        """Make a task."""
        context = options.get("context")
        machine = _MACHINE.get() if context is None else context.get(_MACHINE)
        if machine is not None and asyncio.iscoroutine(work):
            work = Carried(work, machine)
        if self._before is not None:
            return self._before(on, work, **options)
        return asyncio.Task(work, loop=on, **options)


def current_machine() -> Machine | None:
    """Give the machine that the current code runs on."""
    return _MACHINE.get()


def carry_tasks() -> Callable[[], None]:
    """Carry the tasks of machines on the running loop from now on; gives the way to end that."""
    loop = asyncio.get_running_loop()
    factory = Factory(loop)
    loop.set_task_factory(factory)

    def end() -> None:
        if loop.get_task_factory() is factory:
            loop.set_task_factory(factory._before)  # noqa: SLF001 - its own

    return end
