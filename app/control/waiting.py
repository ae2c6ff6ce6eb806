"""One waiter for all requests of a process that wait for jobs to finish.

A request registers its job; the one loop here asks the store about all of them in one statement, when the store says
that something finished and, as a floor, by polling. A waiting request holds no connection. It never reads jobs itself
and never decides what is answered: it only says "finished" or "not in time". Its listener is the only one of the
process: whoever else wants wake-ups is told them from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ..domain.errors import OutlastError
from ..domain.job import JobId
from ..drivers.protocol import JobDriver, Wake

# Without wake-ups: how often the store is asked, as long as anybody waits.
_POLL_SECONDS = 0.5
# With wake-ups polling only covers a lost one.
_FLOOR_SECONDS = 5.0
# Every job that finishes anywhere wakes every process that listens; this bounds what the statement costs the store.
_BREATH_SECONDS = 0.02
_LIMIT = 1_000
_NEWS = frozenset({Wake.FINISHED})
_ALL_NEWS = frozenset({Wake.FINISHED, Wake.READY, Wake.DELAYED, Wake.REVOKED})


class ResultWaiters:
    """Lets requests wait for jobs; `run` is its loop and must be running for anything to be found.

    `beside` is called with every wake-up about jobs.
    """

    def __init__(
        self,
        driver: JobDriver,
        *,
        beside: Callable[[Wake], None] | None = None,
        poll_seconds: float = _POLL_SECONDS,
        limit: int = _LIMIT,
    ) -> None:
        self._driver = driver
        self._beside = beside
        self._poll_seconds = poll_seconds
        self._limit = limit
        self._waiting: dict[JobId, set[asyncio.Event]] = {}
        self._look = asyncio.Event()
        self._someone_waits = asyncio.Event()
        self._is_closing = False
        self._is_listening = False

    @property
    def count(self) -> int:
        """Give how many requests wait now."""
        return sum(len(events) for events in self._waiting.values())

    def open(self) -> None:
        """Let requests wait, again after a `stop`; `run` follows."""
        self._is_closing = False

    def stop(self) -> None:
        """End every wait now, unanswered, and begin no new one: the process drains."""
        self._is_closing = True
        self._someone_waits.set()
        self._look.set()
        for events in self._waiting.values():
            _set_all(events)

    async def finished(self, job_id: JobId, timeout_seconds: float) -> bool:
        """Return True as soon as the job is terminal or gone; False when the time is over or the process drains.

        Beyond the limit of requests that may wait at once it answers False immediately.
        """
        if self._is_closing or self.count >= self._limit:
            return False
        event = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(event)
        self._someone_waits.set()
        self._look.set()  # it may have finished before it was registered
        try:
            async with asyncio.timeout(timeout_seconds):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            self._leave(job_id, event)
        return not self._is_closing

    async def run(self) -> None:
        """Serve the waiting requests until `stop`."""
        async with self._driver.listen(self._on_wake, news=_NEWS if self._beside is None else _ALL_NEWS):
            while not self._is_closing:
                await self._someone_waits.wait()
                await self._next_look()
                if self._waiting and not self._is_closing:
                    await self._ask()

    async def _next_look(self) -> None:
        pause = _FLOOR_SECONDS if self._is_listening else self._poll_seconds
        try:
            async with asyncio.timeout(pause):
                await self._look.wait()
                await asyncio.sleep(_BREATH_SECONDS)
        except TimeoutError:
            pass
        self._look.clear()

    async def _ask(self) -> None:
        try:
            finished = await self._driver.finished_among(tuple(self._waiting))
        except OutlastError:
            # The store is away. Nobody is told anything; the loop asks again at its next look.
            return
        for job_id in finished:
            _set_all(self._waiting.get(job_id, ()))

    def _on_wake(self, wake: Wake) -> None:
        if wake in (Wake.LISTENING, Wake.LOST):
            self._is_listening = wake is Wake.LISTENING
        if wake in (Wake.LISTENING, Wake.LOST, Wake.FINISHED):
            self._look.set()
        if self._beside is not None:
            self._beside(wake)

    def _leave(self, job_id: JobId, event: asyncio.Event) -> None:
        events = self._waiting.get(job_id, set())
        events.discard(event)
        if not events:
            self._waiting.pop(job_id, None)
        if not self._waiting and not self._is_closing:
            self._someone_waits.clear()


def _set_all(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()
