"""What any worker does for the whole store: promote what is due, take over from workers that are gone, expire, count.

No leader: every verb is safe to run anywhere at any time. After a sweep of its own that failed, or that took long, the
reaper waits one lease, because a database outage is not a crash: workers get that long to come back by themselves.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from ..domain.errors import OutlastError
from ..domain.snapshot import Expired, Reaped
from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry
from .options import WorkerOptions

T = TypeVar("T")

PROMOTE_SECONDS = 1.0  # how late a job can become ready that another process delayed
_BATCH = 1000
_SOONEST_SECONDS = 0.005  # due rows are looked for this much after they are due, not before


class Maintenance:
    """The sweeps of one life of a worker. `on_ready` hears that jobs became ready; `may_reap` is asked each time."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        options: WorkerOptions,
        telemetry: Telemetry,
        leaving: asyncio.Event,
        on_ready: Callable[[], None],
        may_reap: Callable[[], bool],
        roll: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._options = options
        self._telemetry = telemetry
        self._leaving = leaving
        self._on_ready = on_ready
        self._may_reap = may_reap
        self._roll = roll
        self._monotonic = monotonic
        self._due: list[float] = []
        self._due_changed = asyncio.Event()
        self._reap_from = 0.0

    def due_in(self, delay: timedelta) -> None:
        """Look again when a job of this worker's becomes due, if that is sooner than the next look."""
        if delay.total_seconds() < PROMOTE_SECONDS:
            heapq.heappush(self._due, self._monotonic() + delay.total_seconds() + _SOONEST_SECONDS)
            self._due_changed.set()

    def outage(self) -> None:
        """Let the reaper wait one lease from now."""
        self._reap_from = self._monotonic() + self._options.lease.total_seconds()

    async def promote(self) -> None:
        """Make due jobs ready, every second and when one of this worker's is due, until leaving."""
        while not self._leaving.is_set():
            count = await self._try("promote", self._driver.promote(_BATCH)) or 0
            if count:
                self._on_ready()
            if count < _BATCH:
                await self._until_due()
            else:
                await asyncio.sleep(0)

    async def sweep(self) -> None:
        """Expire and reap every sweep interval until leaving, each as long as there is a whole batch of it."""
        while not self._leaving.is_set():
            await self._while_full(self._expire)
            await self._while_full(self._reap)
            await self._rest(self._options.sweep.total_seconds())

    async def _while_full(self, once: Callable[[], Awaitable[int]]) -> None:
        while await once() >= _BATCH:
            if self._leaving.is_set():
                return
            await asyncio.sleep(0)  # a store in this process answers without giving way

    async def _expire(self) -> int:
        expired: tuple[Expired, ...] = await self._try("expire", self._driver.expire(_BATCH)) or ()
        self._telemetry.jobs_expired(expired)
        return len(expired)

    async def _reap(self) -> int:
        if not self._may_reap() or self._monotonic() < self._reap_from:
            return 0
        reaped: tuple[Reaped, ...] = await self._try("reap", self._driver.reap(_BATCH)) or ()
        self._telemetry.claims_taken_over(reaped)
        if reaped:
            self._on_ready()
        return len(reaped)

    async def count(self) -> None:
        """Refresh the gauges of the store until leaving."""
        while not self._leaving.is_set():
            try:
                self._telemetry.store_counted(await self._driver.stats())
            except Exception as error:  # noqa: BLE001 - said; counting may be slow on a large store and proves nothing
                self._telemetry.store_call_failed("stats", error)
            await self._rest(self._options.stats_every.total_seconds())

    async def _try(self, verb: str, call: Awaitable[T]) -> T | None:
        """Make one call; when the store could not be reached, or only after a while, the reaper waits."""
        began = self._monotonic()
        try:
            answer = await call
        except Exception as error:  # noqa: BLE001 - said, and done again next time
            self._telemetry.store_call_failed(verb, error)
            if isinstance(error, OutlastError) and error.retryable:
                self.outage()
            return None
        if self._monotonic() - began > self._options.lease.total_seconds() / 3:
            self.outage()
        return answer

    async def _rest(self, seconds: float) -> None:
        await first_of(self._leaving, within=seconds * (1 - self._roll() / 4))

    async def _until_due(self) -> None:
        """Wait for the next regular look, or for the instant a known job is due."""
        look = self._monotonic() + PROMOTE_SECONDS * (1 - self._roll() / 4)
        while not self._leaving.is_set():
            self._due_changed.clear()
            now = self._monotonic()
            until = min(look, self._due[0]) if self._due else look
            if until <= now:
                break
            await first_of(self._leaving, self._due_changed, within=until - now)
        now = self._monotonic()
        while self._due and self._due[0] <= now:
            heapq.heappop(self._due)
