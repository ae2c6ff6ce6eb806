"""Steps on their way in: what gathers while one statement commits goes out in the next.

As with single enqueues, a commit costs the same for one row and for hundreds: callers share it, each is answered after
its own row's commit, and one caller's bad value is its own. Owns the one task that sends; `steps` says how.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ...domain.errors import OutlastError
from .apart import start_apart
from .enqueue_lane import own_error, refuse_callers
from .steps import Recording

MAX_ROWS = 500
MAX_CHARS = 4 * 1024 * 1024
_LAST_ROUND_SECONDS = 5.0

Record: TypeAlias = Callable[[Sequence[Recording]], Awaitable[Sequence[bool]]]
_Caller: TypeAlias = tuple[Recording, asyncio.Future[bool]]

_FIX = "leave the step to the next attempt, which finds the record or does the work again"


class StepLane:
    """Sends steps in batches over `record`, which answers each by itself."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._waiting: list[_Caller] = []
        self._sending: asyncio.Task[None] | None = None

    async def record(self, recording: Recording) -> bool:
        """Record one step, durable when this returns. Cancelling the call leaves the row on its way.

        Raises:
            OutlastError: what refused this step, or the store's unavailability.
        """
        sending = self._sending
        is_sending = sending is not None and not sending.done()
        # Asking which loop runs is a call to the operating system; while a sender is at work, it is known.
        loop = sending.get_loop() if sending is not None and is_sending else asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((recording, answer))
        if not is_sending:
            self._sending = start_apart(self._send(), name="outlast.record")
        return await answer

    async def close(self) -> None:
        """Send what has gathered, within a bound, and tell whoever is left; called when the driver closes."""
        if self._sending is not None and not self._sending.done():
            await asyncio.wait((self._sending,), timeout=_LAST_ROUND_SECONDS)
            self._sending.cancel()
            await asyncio.wait((self._sending,))
        self._refuse_waiting()  # a task that was cancelled before its first step has told nobody

    async def _send(self) -> None:
        try:
            # Before each batch, what the loop has ready joins it: callers answered together come back together.
            await asyncio.sleep(0)
            while self._waiting:
                batch = self._next()
                try:
                    await self._settle(batch)
                finally:
                    refuse_callers(batch, "while this step was on its way: whether it is recorded is unknown", _FIX)
                await asyncio.sleep(0)
        finally:
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        refuse_callers(waiting, "before this step was sent: it is not recorded", _FIX)

    def _next(self) -> list[_Caller]:
        count = chars = 0
        for (_, step), _ in self._waiting[:MAX_ROWS]:
            chars += len(step.value or "")
            if count and chars > MAX_CHARS:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _settle(self, batch: list[_Caller]) -> None:
        """Record a batch; a value that fails the statement is found by sending one by one."""
        try:
            answers = await self._record([recording for recording, _ in batch])
        except Exception as error:  # noqa: BLE001 - handed to the callers it belongs to
            if len(batch) == 1 or (isinstance(error, OutlastError) and error.retryable):
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(own_error(error))
                return
            for caller in batch:
                await self._settle([caller])
            return
        for (_, answer), is_held in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(is_held)
