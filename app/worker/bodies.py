"""Runs bodies: those of `async def` one after the other in a task they share, until one has to wait for something.

Most bodies of small jobs return without ever waiting, and a task of its own costs more than all else that is done for
one. So a task carries the runs at hand; the first body that waits keeps that task for its life, and the rest go on in
another. As long as bodies wait, more and more tasks begin one each beside it: one a turn of the loop would leave most
places of a worker idle. A body cannot tell: it has a context of its own, and a task that no other body has left a trace
on. Bodies of `def` run in the pool's threads. Driven by `run`.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, cast

from ..domain.verdict import Ended, Raised, Reason
from ..lifecycle.tasks import start_task
from .error_info import error_info
from .execute import Caller
from .roster import Run, body_name

_SLICE_SECONDS = 0.005  # bodies in a row, then the loop gets its turn
_HAS_ENDED = object()
_MOST_BESIDE = 32  # bodies begun in one turn of the loop beside those that are carried in a row


class Bodies:
    """Calls bodies and says how each ended: `on_ended` hears it once a run, on the loop, and must not raise."""

    def __init__(
        self,
        *,
        caller: Caller,
        pool: Executor,
        monotonic: Callable[[], float],
        on_ended: Callable[[Run, Ended], None],
    ) -> None:
        self._caller = caller
        self._pool = pool
        self._monotonic = monotonic
        self._on_ended = on_ended
        self._waiting: deque[Run] = deque()
        self._told: list[Run] = []  # by a drain, before their bodies were called
        self._gives_back = True
        self._is_carried = False
        self._looks: set[asyncio.Task[None]] = set()
        self._carrier: asyncio.Task[None] | None = None  # held, so that it is not collected before its first step
        self._beside: set[asyncio.Task[None]] = set()  # to begin one body each; held for the same reason

    def begin(self, run: Run) -> None:
        """Have a run's body called soon, in a copy of the current context."""
        run.has_begun = True
        if run.handle.is_sync:
            if run.may_have_history:
                look = start_task(self._begin_after_look(run), name="outlast.run")
                self._looks.add(look)
                look.add_done_callback(self._looks.discard)
            else:
                self._begin_in_thread(run)
            return
        self._waiting.append(run)
        if not self._is_carried:
            self._carry_on()

    def give_back(self) -> list[Run]:
        """Give the runs whose bodies were not called before a drain told them, once: those told later are called."""
        self._gives_back = False
        told = self._told + [run for run in self._waiting if _is_draining(run)]
        self._waiting = deque(run for run in self._waiting if not _is_draining(run))
        self._told = []
        for run in told:
            run.has_begun = False
        return told

    async def _begin_after_look(self, run: Run) -> None:
        ended = await self._caller.ahead(run)
        if ended is None:
            self._begin_in_thread(run)
        else:
            self._over(run, ended)

    def _begin_in_thread(self, run: Run) -> None:
        context = contextvars.copy_context()
        try:
            call = self._caller.prepare(run)
        except Exception as error:  # noqa: BLE001 - metadata nobody can read ends this attempt only
            self._over(run, Raised(error=error_info(error)))
            return
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._pool, context.run, self._caller.in_thread, call)
        future.add_done_callback(lambda done: self._over(run, _ended_of(done)))

    # --- on the loop ------------------------------------------------------------------------------------------------

    def _carry_on(self) -> None:
        """Have the waiting runs carried by a task of their own, if there are any."""
        self._is_carried = bool(self._waiting)
        if self._waiting:
            # From within another such task its context is as good: no body touches it.
            self._carrier = start_task(self._carry(), name="outlast.run")

    def _begin_beside(self, most: int) -> None:
        """Have up to `most` waiting runs begun in the loop's next turn, beside the one that the carrier begins."""
        room = min(_MOST_BESIDE, len(self._waiting) - 1) - len(self._beside)
        for _ in range(min(most, room)):
            self._beside.add(start_task(self._carry(is_beside=True), name="outlast.run"))

    async def _carry(self, *, is_beside: bool = False) -> None:
        """Carry waiting runs; the first whose body has to wait is the last. Beside the carrier it is only one."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._beside.discard(task)
        unmarked, until = _marks(task), self._monotonic() + _SLICE_SECONDS
        is_carrier = not is_beside
        try:
            while (run := self._next()) is not None:
                call, context = self._called(run, task), contextvars.copy_context()
                waits_for = self._begun(run, call, context)
                if waits_for is not _HAS_ENDED:
                    if is_carrier:
                        self._carry_on()
                    self._begin_beside(1 if is_carrier else 2)
                    is_carrier = False
                    try:
                        ended = await _steps(call, context, waits_for)
                    except GeneratorExit as error:
                        # A child of the body's raised it, which closes the body; else the loop is gone, and so is this.
                        if asyncio.current_task(task.get_loop()) is not task:
                            raise
                        ended = Raised(error=error_info(error))
                    self._over(run, ended)
                    return
                if is_beside or _marks(task) != unmarked or self._monotonic() >= until:
                    return
        finally:
            if is_carrier:
                self._carry_on()

    def _next(self) -> Run | None:
        """Give the next run whose body is to be called; those that a drain has told go back while they may."""
        while self._waiting:
            run = self._waiting.popleft()
            if not (self._gives_back and _is_draining(run)):
                return run
            run.has_begun = False
            self._told.append(run)
        return None

    def _begun(self, run: Run, call: Coroutine[Any, Any, Ended], context: contextvars.Context) -> object:
        """Take a body to where it first has to wait, and give for what; `_HAS_ENDED` once it is over."""
        try:
            return context.run(call.send, None)
        except StopIteration as stop:
            # Also when its cancellation came too late to be met: work that is done is done.
            self._over(run, stop.value)
        except BaseException as error:  # noqa: BLE001 - ours, or an exit that struck while an error was sorted
            self._over(run, Raised(error=error_info(error)))
        return _HAS_ENDED

    def _called(self, run: Run, task: asyncio.Task[Any]) -> Coroutine[Any, Any, Ended]:
        """Give the coroutine of a run's body, not begun; `task` is its own from here on."""
        if run.is_cancelled:
            return _cancelled()
        run.task = task
        task.set_name(body_name(str(run.job.token.job_id)))
        return self._caller.on_loop(run, task)

    def _over(self, run: Run, ended: Ended) -> None:
        run.has_ended = True
        run.task = None
        self._on_ended(run, ended)


@types.coroutine
def _steps(
    call: Coroutine[Any, Any, Ended], context: contextvars.Context, waits_for: object
) -> Generator[Any, Any, Ended]:
    """Take a body that has begun through the rest of its steps, each in the body's context."""
    while True:
        value: object = None
        failure: BaseException | None = None
        try:
            value = yield waits_for
        except GeneratorExit:
            context.run(call.close)
            raise
        except BaseException as error:  # noqa: BLE001 - a cancellation, as a rule; it is the body's to answer
            failure = error
        try:
            waits_for = context.run(call.send, value) if failure is None else context.run(call.throw, failure)
        except StopIteration as stop:
            return cast("Ended", stop.value)
        except BaseException as error:  # noqa: BLE001 - as above
            return Raised(error=error_info(error))


def _is_draining(run: Run) -> bool:
    return run.signal.first is Reason.DRAIN


async def _cancelled() -> Ended:
    return Raised(error=error_info(asyncio.CancelledError("cancelled before it began")))


def _marks(task: asyncio.Task[Any]) -> tuple[object, ...]:
    """Give what tells whether a body has left a trace on its task, or kept it: another must not share it then."""
    return (
        sys.getrefcount(task),
        weakref.getweakrefcount(task),
        task.cancelling(),
        getattr(task, "_must_cancel", task),
        getattr(task, "_callbacks", task),
    )


def _ended_of(body: asyncio.Future[Ended]) -> Ended:
    """Read how a body in a thread ended off its future."""
    if body.cancelled():
        return Raised(error=error_info(asyncio.CancelledError("cancelled before it began")))
    if (error := body.exception()) is not None:
        return Raised(error=error_info(error))
    return body.result()
