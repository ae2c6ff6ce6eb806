"""Steps on their way in: what gathers while one statement commits goes out in the next.

As with single enqueues, a commit costs the same for one row and for hundreds: callers share it, each is answered after
its own row's commit, and one caller's bad value is its own. Runs that are answered together ask for their next steps
together, so that with one statement at a time the server would rest while bodies run, and bodies while it commits:
when many gather, they are sent in two halves, and one half's bodies run during the other's commit. Owns the tasks that
send; `steps` says how.
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
MOST_SENDERS = 2
# From so many on, two statements of half each cost less than the time that either side would wait for the other.
MIN_SHARED = 32
_LAST_ROUND_SECONDS = 5.0

Record: TypeAlias = Callable[[Sequence[Recording]], Awaitable[Sequence[bool]]]
_Caller: TypeAlias = tuple[Recording, asyncio.Future[bool]]

_FIX = "leave the step to the next attempt, which finds the record or does the work again"


class StepLane:
    """Sends steps in batches over `record`, which answers each by itself."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._waiting: list[_Caller] = []
        self._senders: list[asyncio.Task[None]] = []
        self._choosing = 0  # senders that have nothing on its way, and will take of what waits

    def record(self, recording: Recording) -> asyncio.Future[bool]:
        """Record one step, durable once the future has its answer. Cancelling that leaves the row on its way.

        Raises:
            OutlastError: what refused this step, or the store's unavailability.
        """
        senders = self._senders
        # Asking which loop runs is a call to the operating system; while a sender is at work, it is known.
        loop = senders[0].get_loop() if senders else asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((recording, answer))
        if not senders or (len(self._waiting) >= MIN_SHARED and len(senders) < MOST_SENDERS):
            self._choosing += 1
            sender = start_apart(self._send(), name="outlast.record")
            senders.append(sender)
            sender.add_done_callback(self._leave)
        return answer

    async def close(self) -> None:
        """Send what has gathered, within a bound, and tell whoever is left; called when the driver closes."""
        if senders := tuple(self._senders):
            await asyncio.wait(senders, timeout=_LAST_ROUND_SECONDS)
            for sender in senders:
                sender.cancel()
            await asyncio.wait(senders)
        self._refuse_waiting()  # a task that was cancelled before its first step has told nobody

    async def _send(self) -> None:
        try:
            # Before each batch, what the loop has ready joins it: callers answered together come back together.
            await asyncio.sleep(0)
            while self._waiting:
                batch = self._next()
                self._choosing -= 1
                try:
                    await self._settle(batch)
                finally:
                    self._choosing += 1
                    refuse_callers(batch, "while this step was on its way: whether it is recorded is unknown", _FIX)
                await asyncio.sleep(0)
        finally:
            self._leave(asyncio.current_task())

    def _leave(self, sender: asyncio.Task[None] | None) -> None:
        """Count a sender off at once, also one that was cancelled before its first step; the last tells who waits."""
        if sender is not None and sender in self._senders:
            self._senders.remove(sender)
            self._choosing -= 1
            if not self._senders:
                self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        refuse_callers(waiting, "before this step was sent: it is not recorded", _FIX)

    def _next(self) -> list[_Caller]:
        count = chars = 0
        waiting = len(self._waiting)
        share = waiting if waiting < MIN_SHARED else -(-waiting // self._choosing)
        for (_, step), _ in self._waiting[: min(share, MAX_ROWS)]:
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
