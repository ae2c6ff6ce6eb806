"""An event loop in virtual time whose ready callbacks run in an order drawn by lot, and the machines that share it.

Time stands still while anything can run and jumps to the next timer when nothing can, so an hour costs no more than
what happens in it. Every callback belongs to the machine whose task scheduled it: a machine can die, when nothing of it
runs ever again, be frozen, when everything of it runs later, or sleep, when its timers do not notice.
"""

from __future__ import annotations

import asyncio
import heapq
import warnings
from asyncio import BaseEventLoop
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

_MOST_STEPS = 1_000_000  # far more than any world takes: time that stands still for ever is a bug
_MOST_FINALLY = 100  # `finally` clauses that wait, around each other

OWNER: ContextVar[Machine | None] = ContextVar("simulated_machine", default=None)


class Stuck(AssertionError):
    """Nothing can run and no timer is set, or time does not pass."""


class WorldEnd(BaseException):
    """Ends what has not ended by itself, at every point where it waits again."""


class Machine:
    """Something that runs on its own and can stop on its own: a process."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.slept = 0.0
        self.kept: list[asyncio.Handle] = []
        self.task: asyncio.Task[None] | None = None
        self._loop = loop
        self.context: Context = copy_context()
        self.context.run(OWNER.set, self)

    def run(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Start a task of this machine."""
        self.task = self._loop.create_task(work, name=f"{self.name}.{name}", context=self.context.copy())

    @property
    def failure(self) -> BaseException | None:
        """Give what its task ended by, which nobody awaits."""
        task = self.task
        return None if task is None or not task.done() or task.cancelled() else task.exception()

    def die(self) -> None:
        """Run nothing any more, from the next step on."""
        self.is_dead = True
        self._loop.take_back(self.kept)
        self.kept.clear()

    def freeze(self, seconds: float) -> None:
        """Run nothing for a while; timers that fall due meanwhile go off at its end."""
        if not (self.is_frozen or self.is_dead):
            self.is_frozen = True
            Context().run(self._loop.call_later, seconds, self._thaw)

    def sleep(self, seconds: float) -> None:
        """Run nothing for a while that the monotonic clock does not count."""
        if not (self.is_frozen or self.is_dead):
            self._loop.shift_timers(self, seconds)
            self.slept += seconds
            self.freeze(seconds)

    def _thaw(self) -> None:
        self.is_frozen = False
        self._loop.take_back(self.kept)
        self.kept.clear()


class VirtualLoop(BaseEventLoop):
    """The loop of one world."""

    # What every loop of asyncio is made of.
    _ready: deque[Any]
    _scheduled: list[Any]
    _stopping: bool

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self._roll = dice.random
        self._virtual = 0.0
        self._steps = 0
        self._made: list[asyncio.Task[Any]] = []
        self._never_run: list[asyncio.Handle] = []
        self.noise: list[str] = []
        self.set_exception_handler(lambda _, context: self.noise.append(_said(context)))

    def time(self) -> float:
        return self._virtual

    def create_task(self, work: Any, **options: Any) -> asyncio.Task[Any]:  # type: ignore[override] # passed on
        """Keep every task: what is collected at an instant of the collector's own would run code then."""
        task = super().create_task(work, **options)
        self._made.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Be a thread: the function takes no time, its return does."""
        future: asyncio.Future[Any] = self.create_future()
        self.call_later(self._roll(), _call_into, future, func, args)
        return future

    def shift_timers(self, machine: Machine, seconds: float) -> None:
        """Let a machine's timers go off later."""
        for timer in self._scheduled:
            if timer._context.get(OWNER) is machine:
                timer._when += seconds
        heapq.heapify(self._scheduled)

    def take_back(self, handles: list[asyncio.Handle]) -> None:
        """Run what was kept."""
        self._ready.extend(handles)

    def end(self) -> None:
        """End every task that has not ended, so that nothing of this world runs later."""
        self.set_exception_handler(lambda *_: None)
        asyncio._set_running_loop(self)
        try:
            for task in self._made:  # ending one can make others
                if not task.done():
                    _end(task)
        finally:
            asyncio._set_running_loop(None)
        with warnings.catch_warnings():
            # A step of a dead machine can have had a coroutine to start.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            for left in (self._made, self._never_run, self._ready, self._scheduled):
                left.clear()
        self.close()

    # --- what a loop is made of ---------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready = self._ready
        if not ready:
            self._pass_time()
        while ready and not self._stopping:
            if len(ready) > 1:
                ready.rotate(-int(self._roll() * len(ready)))
            handle = ready.popleft()
            owner = handle._context.get(OWNER)
            if handle._cancelled:
                continue
            if owner is not None and owner.is_dead:
                self._never_run.append(handle)
                continue
            if owner is not None and owner.is_frozen:
                owner.kept.append(handle)
                continue
            self._steps += 1
            handle._run()
        if self._steps > _MOST_STEPS:
            raise Stuck(f"still not over after {self._steps} steps, at {self._virtual:.3f} s")

    def _pass_time(self) -> None:
        timers = self._scheduled
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not timers:
            raise Stuck(f"nothing can run any more, at {self._virtual:.3f} s")
        self._virtual = max(self._virtual, timers[0]._when)
        while timers and timers[0]._when <= self._virtual:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            self._ready.append(timer)

    def _write_to_self(self) -> None:
        """There is no other thread to wake this one."""

    def _process_events(self, event_list: object) -> None:
        """There is no other source of events."""


def _call_into(future: asyncio.Future[Any], func: Any, args: tuple[Any, ...]) -> None:
    if not future.done():
        future.set_result(func(*args))


def _end(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined] # as `asyncio.gather` does it
    coroutine = task.get_coro()
    with suppress(BaseException):
        for _ in range(_MOST_FINALLY):
            coroutine.throw(WorldEnd())


def _said(context: dict[str, Any]) -> str:
    return f"{context.get('message')} {context.get('exception')!r}"
