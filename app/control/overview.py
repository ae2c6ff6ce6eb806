"""The whole store at a glance: jobs by state and queue, and a hint whenever something has happened to one.

Counting is bounded and still the dearest look there is, so what was counted a moment ago answers for all who ask. How
old the oldest ready job was is remembered, as far as somebody asked. Called by the dashboard and the role of the API.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager

from ..domain.errors import QueryTooSlow
from ..domain.snapshot import DeadGroup, Stats
from ..domain.waited import LOOK_SECONDS, is_waited_for
from ..drivers.protocol import JobDriver, Wake
from .history import History, Sample

# Of each state of ended jobs the newest are counted, by whichever store.
COUNTED_ENDED = 10_000
_KEPT_SECONDS = 2.0
_SHOWN_SECONDS = 30.0
_GROUPED_SECONDS = 15.0
_MOST_TENANTS = 100


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
        # One at a time of each kind, which answers for all who wait.
        self._counting = asyncio.Lock()
        self._grouping = asyncio.Lock()
        # Grow when this process changes what is counted, so that a count under way is not kept.
        self._changes = 0
        self._deletions = 0
        self._counted: tuple[float, Stats] | None = None
        self._grouped: dict[str | None, tuple[float, tuple[DeadGroup, ...]]] = {}
        self._history = History()

    async def stats(self) -> Stats:
        """Give jobs by state and queue, as they were counted at most two seconds ago; of all tenants."""
        async with _turn(self._counting):
            if self._counted is None or self._monotonic() - self._counted[0] > self._kept_seconds:
                began, changes = self._monotonic(), self._changes
                stats = await self._driver.stats()
                self._remember(began, stats)
                if changes != self._changes:
                    return stats
                self._counted = (began, stats)
            return self._counted[1]

    @property
    def last(self) -> Stats | None:
        """Give what somebody had counted in the last half minute; the store is not asked."""
        if self._counted is None or self._monotonic() - self._counted[0] > _SHOWN_SECONDS:
            return None
        return self._counted[1]

    async def dead_letters(self, *, tenant: str | None) -> tuple[DeadGroup, ...]:
        """Give the dead letters in groups, as they were up to a quarter of a minute ago: many are read for it."""
        async with _turn(self._grouping):
            found = self._grouped.get(tenant)
            if found is None or self._monotonic() - found[0] > _GROUPED_SECONDS:
                began, deletions = self._monotonic(), self._deletions
                found = (began, await self._driver.dead_letters(tenant=tenant))
                if deletions != self._deletions:
                    return found[1]
                if len(self._grouped) >= _MOST_TENANTS:
                    self._grouped.clear()
                self._grouped[tenant] = found
            return found[1]

    def forget_dead_letters(self) -> None:
        """Look again when somebody asks next: some were just deleted by this process. Waits for no look under way."""
        self._deletions += 1
        self._grouped.clear()

    def forget(self) -> None:
        """Count again when somebody asks next: this process changed what is counted. Waits for no count under way."""
        self._changes += 1
        self._counted = None

    def history(self, seconds: float) -> tuple[Sample, ...]:
        """Give how old the oldest ready job was in the last so many seconds, oldest first; gaps where nobody asked."""
        return self._history.since(self._monotonic(), seconds)

    def heard(self, ear: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `ear` while the context is open whenever something may have happened to a job; only hints.

        Raises:
            DriverUnavailable: the store is closed.
        """

        def on_wake(_wake: Wake) -> None:
            ear()

        return self._driver.heard(on_wake)

    def _remember(self, at: float, stats: Stats) -> None:
        self._history.add(at, max((queue.oldest_ready_seconds or 0.0 for queue in stats.queues), default=0.0))


@asynccontextmanager
async def _turn(lock: asyncio.Lock) -> AsyncIterator[None]:
    """Wait for who is counting, who answers for all; no longer than a read may take.

    Raises:
        QueryTooSlow: others were before for that long.
    """
    try:
        async with asyncio.timeout(LOOK_SECONDS if is_waited_for() else None):
            await lock.acquire()
    except TimeoutError as late:
        raise QueryTooSlow(
            f"the store was counted for others for {LOOK_SECONDS:g} s", fix="repeat the call in a moment"
        ) from late
    try:
        yield
    finally:
        lock.release()
