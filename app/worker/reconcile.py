"""Hands back what the store says a worker holds and it does not: claims and slots.

After a call whose reply was lost, and once a lease in any case. Asked by the claim loop, which lets no claim be under
way meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from .backoff import Backoff
from .lease import Lease
from .roster import Roster
from .run import Bench

_SOON = 1 / 6  # of a lease, after a call whose reply was lost; else once a lease


class Reconciler:
    """What one life of a worker doubts. `has_slots` says whether it may hold slots."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        bench: Bench,
        roster: Roster,
        backoff: Backoff,
        leaving: asyncio.Event,
        has_slots: Callable[[], bool],
    ) -> None:
        self._driver = driver
        self._bench = bench
        self._roster = roster
        self._backoff = backoff
        self._leaving = leaving
        self._has_slots = has_slots
        self._is_given_up = False
        self._at = bench.monotonic() + bench.options.lease.total_seconds()
        self.is_doubtful = False

    @property
    def is_due(self) -> bool:
        """Say whether it is to be done before the next claim."""
        return self._bench.monotonic() >= self._at

    def doubt(self) -> None:
        """Note that the store may hold claims for this worker that it does not know of."""
        self.is_doubtful = True
        self._at = 0.0

    def give_up(self) -> None:
        """Leave what has not ended to whoever takes its claims over."""
        self._is_given_up = True

    async def run(self, lease: Lease) -> None:
        """Do it once; what fails is said, and repeated before the next claim."""
        try:
            # No claim is under way here. What is claimed after this is known and safe, also from a call given up on.
            now = await self._driver.database_time()
            if self._is_given_up or not lease.is_held:
                return  # what had begun under it is not known here any more: who takes it over puts that on record
            count = await self._driver.reconcile(lease.worker_id, self._roster.tokens(lease), before=now)
            if self._has_slots():
                await self._driver.return_slots(lease.worker_id, self._roster.holding(lease), before=now)
        except Exception as error:  # noqa: BLE001 - said and repeated before the next claim
            self.doubt()
            self._bench.telemetry.store_call_failed("reconcile", error)
            await first_of(self._leaving, within=self._backoff.failed())
            return
        if count:
            self._bench.telemetry.claims_reconciled(int(lease.worker_id), count=count)
        # A claim whose reply was lost may still be on its way to the store, and take place after this: look again.
        self._at = self._bench.monotonic() + lease.seconds * (_SOON if self.is_doubtful else 1.0)
        self.is_doubtful = False
