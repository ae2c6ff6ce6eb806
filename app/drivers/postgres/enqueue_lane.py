"""Single enqueues on their way in: what gathers while one statement commits goes out in the next.

A commit costs the same for one row and for hundreds, so callers share it: each is answered after its own row's commit,
and one caller's refusal or bad value is its own. A caller that goes away does not take its row along. Owns the one
task that sends; `enqueue` says how a batch is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from ...domain.errors import DriverUnavailable, OutlastError
from ...domain.job import Enqueued, NewJob
from .apart import start_apart

# Past some hundred rows a statement's own cost hides the commit's; more would only make the first of them wait.
MAX_ROWS = 500
MAX_CHARS = 4 * 1024 * 1024
_LAST_ROUND_SECONDS = 5.0
_NOT_SENT_FIX = "enqueue it again over a driver that is open"
_UNKNOWN_FIX = f"{_NOT_SENT_FIX}; an idempotency key makes that safe"

Verdict: TypeAlias = Enqueued | OutlastError
Store: TypeAlias = Callable[[Sequence[NewJob]], Awaitable[Sequence[Verdict]]]


# A job and who waits for its answer. Pairs, as one is made for every call.
_Caller: TypeAlias = tuple[NewJob, asyncio.Future[Enqueued]]


class EnqueueLane:
    """Sends single enqueues in batches over `store`, which answers or refuses each job of a batch by itself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[_Caller] = []
        self._sending: asyncio.Task[None] | None = None

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Store one job, durable when this returns. Cancelling the call leaves the row on its way.

        Raises:
            OutlastError: what refused this job, or the store's unavailability.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Enqueued] = loop.create_future()
        self._waiting.append((job, answer))
        if self._sending is None or self._sending.done():
            self._sending = start_apart(self._send(), name="outlast.enqueue")
        # Cancelling the call cancels its answer, and nothing else waits for that.
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
                    refuse_callers(
                        batch, "while this job was on its way: whether it is stored is unknown", _UNKNOWN_FIX
                    )
                await asyncio.sleep(0)
        finally:
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        refuse_callers(waiting, "before this job was sent: it is not stored", _NOT_SENT_FIX)

    def _next(self) -> list[_Caller]:
        count = chars = 0
        for job, _ in self._waiting[:MAX_ROWS]:
            chars += len(job.payload)
            if count and chars > MAX_CHARS:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _settle(self, batch: list[_Caller]) -> None:
        """Store a batch; a value that fails the statement is found by sending one by one."""
        try:
            verdicts = await self._store([job for job, _ in batch])
        except Exception as error:  # noqa: BLE001 - handed to the callers it belongs to
            if len(batch) == 1 or (isinstance(error, OutlastError) and error.retryable):
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(own_error(error))
                return
            for caller in batch:
                await self._settle([caller])
            return
        for (_, answer), verdict in zip(batch, verdicts, strict=True):
            if answer.done():
                continue  # its caller went away
            if isinstance(verdict, OutlastError):
                answer.set_exception(verdict)
            else:
                answer.set_result(verdict)


class EnqueueLanes:
    """Two lanes: jobs of queues that have to be counted first hold up no others. `limited` are those known."""

    def __init__(self, store: Store, limited: AbstractSet[str]) -> None:
        self._plain = EnqueueLane(store)
        self._counted = EnqueueLane(store)
        self._limited = limited

    def of(self, queue: str) -> EnqueueLane:
        """Give the lane of a queue."""
        return self._counted if self._limited and queue in self._limited else self._plain

    async def close(self) -> None:
        """Close both."""
        await asyncio.gather(self._plain.close(), self._counted.close())


def refuse_callers(callers: Sequence[tuple[Any, asyncio.Future[Any]]], when: str, fix: str) -> None:
    """Answer callers that nothing answers any more; others stay answered, or have gone away."""
    for _, answer in callers:
        if not answer.done():
            answer.set_exception(DriverUnavailable(f"the driver was closed {when}", fix=fix, is_closed=True))


def own_error(error: Exception) -> Exception:
    """Give each caller an error of its own: one that is raised in many tasks would gather all their tracebacks."""
    if not isinstance(error, OutlastError):
        return error
    own = type(error)(error.cause, fix=error.fix, **error.details)
    own.__cause__ = error.__cause__
    return own
