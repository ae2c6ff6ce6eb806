"""Requests that wait for jobs to finish: how many may, and how long.

What they wait for is the driver's business, which looks for all who wait in the process at once; a waiting request
holds no connection. Here they are counted, and told when the process drains. It never reads jobs itself and never
decides what is answered: it only says "finished" or "not in time".
"""

from __future__ import annotations

import asyncio

from ..domain.errors import OutlastError
from ..domain.job import JobId
from ..drivers.protocol import JobDriver

_LIMIT = 1_000


class ResultWaiters:
    """Lets requests wait for jobs while `run` runs, which is where a fault of waiting is told."""

    def __init__(self, driver: JobDriver, *, limit: int = _LIMIT) -> None:
        self._driver = driver
        self._limit = limit
        self._waits: set[asyncio.Timeout] = set()
        self._over = asyncio.Event()
        self._fault: Exception | None = None

    @property
    def count(self) -> int:
        """Give how many requests wait now."""
        return len(self._waits)

    def open(self) -> None:
        """Let requests wait, again after a `stop`; `run` follows."""
        self._over, self._fault = asyncio.Event(), None

    def stop(self) -> None:
        """End every wait now, unanswered, and begin no new one: the process drains."""
        self._over.set()
        for wait in self._waits:
            wait.reschedule(0)

    async def finished(self, job_id: JobId, timeout_seconds: float) -> bool:
        """Return True as soon as the job is terminal or gone; False when the time is over or the process drains.

        Beyond the limit of requests that may wait at once it answers False immediately.
        """
        if self._over.is_set() or self.count >= self._limit:
            return False
        try:
            async with asyncio.timeout(timeout_seconds) as wait:
                self._waits.add(wait)
                try:
                    await self._driver.until_finished(job_id)
                finally:
                    self._waits.discard(wait)
        except (TimeoutError, OutlastError):  # the store was closed: the reader that follows says so
            return False
        except Exception as fault:  # noqa: BLE001 - a fault of ours, which ends the listener and not this request
            self._fault = fault
            self.stop()
            return False
        return True

    async def run(self) -> None:
        """Return at `stop`, or raise what has broken the waiting."""
        await self._over.wait()
        if self._fault is not None:
            raise self._fault
