"""The whole store at a glance: jobs by state and queue, and a hint whenever something has happened to one.

Counting is bounded and still the dearest look there is, so what was counted a moment ago answers for all who ask.
Called by the dashboard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..domain.snapshot import Stats
from ..drivers.protocol import JobDriver, Wake

_KEPT_SECONDS = 2.0


class OverviewControl:
    """Counts the jobs of a store, and tells when to count again."""

    def __init__(
        self,
        driver: JobDriver,
        *,
        kept_seconds: float = _KEPT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._kept_seconds = kept_seconds
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._counted: tuple[float, Stats] | None = None

    async def stats(self) -> Stats:
        """Give jobs by state and queue, as they were counted at most two seconds ago; of all tenants."""
        async with self._lock:
            if self._counted is None or self._monotonic() - self._counted[0] > self._kept_seconds:
                began = self._monotonic()
                self._counted = (began, await self._driver.stats())
            return self._counted[1]

    def heard(self, ear: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `ear` while the context is open whenever something may have happened to a job; only hints.

        Raises:
            DriverUnavailable: the store is closed.
        """

        def on_wake(_wake: Wake) -> None:
            ear()

        return self._driver.heard(on_wake)
