"""What the store may hold for this worker that it does not know of: claims and slots whose reply was lost.

Once a lease in any case, and soon after a lost reply, what is held there and not here is handed back. Called by the
claim loop, which claims nothing meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from .backoff import Backoff
from .gate import GateWatch
from .lease import Lease
from .roster import Roster
from .run import Bench

_SOON = 1 / 6  # of a lease, after a call whose reply was lost; else once a lease


class Doubt:
    """Whether there is any, and its end."""

    def __init__(
        self, *, driver: JobDriver, roster: Roster, gate: GateWatch, bench: Bench, leaving: asyncio.Event
    ) -> None:
        self._driver = driver
        self._roster = roster
        self._gate = gate
        self._bench = bench
        self._leaving = leaving
        self._backoff = Backoff(bench.roll)
        self._due_at = bench.monotonic() + bench.options.lease.total_seconds()
        self.is_open = False

    @property
    def is_due(self) -> bool:
        """Say whether it is time to look."""
        return self._bench.monotonic() >= self._due_at

    def arise(self) -> None:
        """Note that the store may hold something for this worker that it does not know of."""
        self.is_open = True
        self._due_at = 0.0

    async def end(self, lease: Lease, *, is_given_up: Callable[[], bool]) -> None:
        """Hand back what the store says this worker holds and it does not; while no claim is under way."""
        try:
            # What is claimed after this is known and safe, also from a call given up on.
            now = await self._driver.database_time()
            if is_given_up() or not lease.is_held:
                return  # what had begun under it is not known here any more: who takes it over puts that on record
            count = await self._driver.reconcile(lease.worker_id, self._roster.tokens(lease), before=now)
            if self._gate.has_looked:
                await self._driver.return_slots(lease.worker_id, self._roster.holding(lease), before=now)
        except Exception as error:  # noqa: BLE001 - said and repeated before the next claim
            self.arise()
            self._bench.telemetry.store_call_failed("reconcile", error)
            await first_of(self._leaving, within=self._backoff.failed())
            return
        self._backoff.succeeded()
        if count:
            self._bench.telemetry.claims_reconciled(int(lease.worker_id), count=count)
        # A claim whose reply was lost may still be on its way to the store, and take place after this: look again.
        soon = _SOON if self.is_open else 1.0
        self.is_open = False
        self._due_at = self._bench.monotonic() + lease.seconds * soon
