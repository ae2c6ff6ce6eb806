"""What others see of this worker in its row: how it learns of work, and how far its drain is.

Shown when it changes, a failure is said and shown with the next change. Owned by `session`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from ..domain.drain import DrainShown
from ..drivers.protocol import JobDriver
from ..lifecycle.drain import DrainBudget
from ..lifecycle.status import DrainPhase
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry
from .registration import Registration


class Showing:
    """Keeps the worker's row up to date."""

    def __init__(self, *, driver: JobDriver, registration: Registration, telemetry: Telemetry) -> None:
        self._driver = driver
        self._registration = registration
        self._telemetry = telemetry
        self._wakeup = "polling"
        self._phase: str | None = None
        self._budget: DrainBudget | None = None
        self._changed = asyncio.Event()

    def wakeup(self, *, is_listening: bool) -> None:
        """Show how the worker learns of work."""
        self._wakeup = "listen" if is_listening else "polling"
        self._changed.set()

    def phase(self, phase: DrainPhase, budget: DrainBudget) -> None:
        """Show how far the drain is, and how long it may take."""
        self._phase, self._budget = phase.value, budget
        self._changed.set()

    def again(self) -> None:
        """Show everything under a new id."""
        self._changed.set()

    async def run(self, over: asyncio.Event) -> None:
        """Show changes until over."""
        while not over.is_set():
            await first_of(self._changed, over)
            if over.is_set():
                return
            self._changed.clear()
            try:
                await self._driver.show_worker(
                    self._registration.lease.worker_id, wakeup=self._wakeup, drain=self._drain()
                )
            except Exception as error:  # noqa: BLE001 - said; shown with the next change
                self._telemetry.store_call_failed("show", error)

    def _drain(self) -> DrainShown | None:
        if self._phase is None or self._budget is None:
            return None
        left, first = self._budget.remaining(self._budget.deadline), self._budget.first
        told = self._budget.since_told
        return DrainShown(
            phase=self._phase,
            reason=None if first is None else first.cause,
            left=None if left is None else timedelta(seconds=left),
            told=None if told is None else timedelta(seconds=told),
        )
