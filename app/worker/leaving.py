"""The last steps of a worker's life: giving up what did not end, storing what did, and closing its row.

Each is bounded by the budget when there is one. A row is closed only when no body runs on: the lease over abandoned
claims is left to run out, so that nobody starts them again while their bodies may still run here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from ..drivers.protocol import JobDriver
from ..lifecycle.drain import DrainBudget
from ..observability.telemetry import Telemetry
from ..steps.repeat import until_known
from .heartbeat import ABANDONED_SECONDS, Heartbeat
from .registration import Registration
from .roster import Roster
from .settler import Settler
from .slot_return import SlotReturn
from .told import Told

_REPORT_SECONDS = 2.0
_SLOTS_SECONDS = 2.0
_CLOSE_SECONDS = 5.0  # a store that does not answer is not waited for: nothing is lost with the row left open


class Leaving:
    """How one life ends."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        telemetry: Telemetry,
        roster: Roster,
        told: Told,
        heartbeat: Heartbeat,
        settler: Settler,
        slots: SlotReturn,
        registration: Registration,
        budget: DrainBudget,
    ) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._roster = roster
        self._told = told
        self._heartbeat = heartbeat
        self._settler = settler
        self._slots = slots
        self._budget = budget
        self._registration = registration

    @property
    def abandoned(self) -> int:
        """Give how many attempts this worker left to others: bodies that run on, and outcomes it could not store."""
        return len(self._told.left())

    async def abandon(self) -> None:
        """Mark what has not ended, so that whoever takes it over reports an interruption, and name each in the log.

        A loop that was blocked until now may find that the heartbeat's thread has done it.
        """
        if not self._told.give_up():
            return
        left = self._budget.remaining(self._budget.deadline) or 0.0
        try:
            async with asyncio.timeout(left):
                tokens = self._roster.tokens(self._registration.lease)
                await self._heartbeat.abandon(tokens, timedelta(seconds=left + ABANDONED_SECONDS))
        except Exception as error:  # noqa: BLE001 - said; the lease then runs out by itself
            self._telemetry.store_call_failed("abandon", error)

    async def flush(self) -> None:
        """Wait until the outcomes at hand are stored; what is finished counts, until just before the deadline.

        Then until slots are given back: those of a worker that closes its row with some are swept.
        """
        await self._budget.wait(self._settler.is_idle, until=_last_settle)
        with suppress(TimeoutError):
            async with self._budget.within(_SLOTS_SECONDS):
                await self._slots.is_idle.wait()
        self._told.leave([run for run in self._roster.runs() if not (run.is_settled or run.is_body_running)])

    async def report(self) -> None:
        """Leave word of the drain in the store; what fails is said, and the drain goes on."""
        report = self._told.report(self._registration.lease.worker_id)
        if report is None:
            return
        try:
            async with self._budget.within(_REPORT_SECONDS):
                await self._heartbeat.report(report)
        except Exception as error:  # noqa: BLE001 - a drain without a report is a drain
            self._telemetry.store_call_failed("report", error)

    async def close_row(self) -> None:
        """Close the worker's row, or give up what a lost lease still holds; what fails is left to the reaper."""
        if any(run.is_body_running for run in self._told.left()):
            return
        lease = self._registration.lease
        try:
            async with self._budget.within(min(lease.seconds, _CLOSE_SECONDS)):
                if lease.is_held:
                    await until_known(lambda: self._driver.close_worker(lease.worker_id))
                await self._registration.surrender()
        except Exception as error:  # noqa: BLE001 - the row's lease runs out by itself
            self._telemetry.store_call_failed("close", error)
        self._telemetry.worker_stopped(int(lease.worker_id))


def _last_settle(budget: DrainBudget) -> float | None:
    """Give the middle between abandoning and the deadline."""
    if budget.deadline is None or budget.abandon_at is None:
        return None
    return (budget.deadline + budget.abandon_at) / 2
