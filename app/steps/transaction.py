"""A step whose record commits together with the caller's own writes: `async with ctx.step.transaction("book")`.

The store gives the session and fences the commit. A recorded block is left out on replay; where Python does not let it
be left out, what it does in its session is rolled back. Made by `ctx.step`.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from types import TracebackType
from typing import Any

from ..domain.step import NewStep, Place, StepKind
from ..domain.step_errors import StepInvalid, TransactionCut
from .leaving_block import way_out
from .points import Moment
from .recorder import Recorder
from .running import step_timed_out
from .skipping import Skip, Skipped
from .tools import while_held


class _ReplayedError(Exception):
    """Makes the store roll back what a body did that could not be left out."""


class Transaction(AbstractAsyncContextManager[Any]):
    """One block. Entering it twice is asking for one step twice."""

    def __init__(self, recorder: Recorder, name: str, *, bind: object | None) -> None:
        self._recorder = recorder
        self._name = name
        self._bind = bind
        self._skip = Skip()
        self._place: Place | None = None
        self._is_recorded = False
        self._session: AbstractAsyncContextManager[Any] | None = None
        self._made: object | None = None
        self._inside = ExitStack()
        self._limit: asyncio.Timeout | None = None

    async def __aenter__(self) -> Any:  # noqa: ANN401 - a session of the caller's database library
        """Begin, or have the block left out when it is recorded.

        Raises:
            TransactionForeign: the session would be on another database than the store's.
            StepInvalid: the block is left by `return`, `break` or `continue`. Else what `run` raises.
        """
        frame = sys._getframe(1)  # noqa: SLF001 - the frame that is to go on
        if (way := way_out(frame)) is not None:
            raise StepInvalid(
                f"the block of the transaction {self._name!r} is left by the {way}, which a replay does not reach",
                fix="let the block come to its end, and return, break or continue behind it",
            )
        self._place, found = await self._recorder.ask(self._name, StepKind.TRANSACTION)
        self._is_recorded = found is not None
        if self._is_recorded and self._skip.arm(frame):
            return None
        return await self._begin(self._place)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Commit the caller's writes with the step, or neither.

        Raises:
            LeaseLost: the claim is gone, and nothing is written.
            StepTimeout: the body took longer than `step_timeout`; nothing is written.
            TransactionCut: the database went away, and nothing is written. An attempt that ends so is not counted.
        """
        self._skip.disarm()
        if isinstance(error, Skipped):
            return True
        if self._session is None or self._place is None:
            return False
        self._inside.close()
        await self._within_limit(self._session, error)
        if not self._is_recorded:
            if error is None:
                await self._recorder.reach(Moment.INSIDE, self._name, StepKind.TRANSACTION, self._made)
                await self._commit(self._session)
            else:
                self._recorder.stop.note(error)
                await self._end(self._session, error)
        else:
            with suppress(_ReplayedError):
                await self._end(self._session, error or _ReplayedError("this transaction is recorded"))
        if error is None and not self._is_recorded:
            self._recorder.passed(self._place)
            await self._recorder.reach(Moment.AFTER, self._name, StepKind.TRANSACTION)
        return False

    async def _begin(self, place: Place) -> object:
        recorder = self._recorder
        step = NewStep(name=self._name, kind=StepKind.TRANSACTION, place=place, value=None)

        async def begun() -> tuple[AbstractAsyncContextManager[Any], object]:
            session = recorder.tools.store.step_transaction(recorder.job.token, step, bind=self._bind)
            return session, await session.__aenter__()

        if self._bind is None:
            self._session, made = await while_held(begun, recorder.signal)
        else:  # the caller's own database, which may never come
            with recorder.signal.in_store():
                self._session, made = await begun()
        self._made = made
        self._inside.enter_context(recorder.inside(self._name))
        self._inside.enter_context(recorder.tools.traced(self._name, StepKind.TRANSACTION))
        if recorder.step_timeout is not None:
            self._limit = recorder.tools.timers.within(recorder.step_timeout.total_seconds())
            await self._limit.__aenter__()
        return made

    async def _within_limit(self, session: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
        """End the limit before the commit begins, so that it cannot cut that."""
        if self._limit is None or self._recorder.step_timeout is None:
            return
        try:
            await self._limit.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except TimeoutError as timeout:
            seconds = self._recorder.step_timeout.total_seconds()
            late = step_timed_out(f"the transaction {self._name!r}", seconds, self._name)
            await self._end(session, late)
            raise late from timeout

    async def _commit(self, session: AbstractAsyncContextManager[Any]) -> None:
        """Commit; where the reply was lost, whether that took place is read off the record.

        A commit that is still on its way keeps the claim locked: whoever runs the job next finds its record.
        """
        try:
            await self._end(session, None)
        except TransactionCut:
            if not await self._recorder.is_recorded(self._name):
                raise

    async def _end(self, session: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
        with self._recorder.signal.in_store():
            if error is None:
                await session.__aexit__(None, None, None)
            else:
                await session.__aexit__(type(error), error, error.__traceback__)
