"""Who this worker is to the store: its registration, and another one when its lease was lost.

A lease that is over is never renewed; its claims are given up before a new id is taken. Owned by `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

from ..domain.job import WorkerId
from ..domain.snapshot import NewWorker
from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry
from .backoff import Backoff
from .lease import Lease
from .options import WorkerOptions


class Registration:
    """The worker's id and lease, in force and lost ones."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        options: WorkerOptions,
        names: frozenset[str],
        telemetry: Telemetry,
        clock: Callable[[], float],
        roll: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._options = options
        self._names = tuple(sorted(names))
        self._telemetry = telemetry
        self._clock = clock
        self._backoff = Backoff(roll, lease_seconds=options.lease.total_seconds())
        self._is_due = asyncio.Event()
        self._lease: Lease | None = None
        self._boot_id: UUID | None = None  # of a registration that nobody has answered yet
        self._surrendered: Lease | None = None
        self._owed: list[Lease] = []

    @property
    def lease(self) -> Lease:
        """Give the lease in force, or the last one."""
        if self._lease is None:
            raise AssertionError("asked before the worker was registered")
        return self._lease

    @property
    def worker_id(self) -> WorkerId | None:
        """Give the worker's id, None before it is registered."""
        return None if self._lease is None else self._lease.worker_id

    async def register(self) -> Lease:
        """Take a new id; its lease is judged from before the call. Repeated after a failure it is the same one."""
        self._boot_id = self._boot_id or uuid4()
        sent = self._clock()
        worker_id = await self._driver.register_worker(
            NewWorker(
                host=self._options.host,
                pid=self._options.pid,
                code_version=self._options.code_version,
                queues=tuple(share.queue for share in self._options.queues),
                concurrency=self._options.concurrency,
                lease_ms=round(self._options.lease / timedelta(milliseconds=1)),
                boot_id=self._boot_id,
                names=self._names,
            )
        )
        self._boot_id = None
        seconds = self._options.lease.total_seconds()
        self._lease = Lease(worker_id=worker_id, seconds=seconds, sent=sent, clock=self._clock)
        return self._lease

    def owes(self, lease: Lease) -> None:
        """Note that a lease is over and what it covered is to be given back; again for claims that came after that."""
        self._owed.append(lease)
        self._is_due.set()

    async def surrender(self) -> None:
        """Give back every claim under leases that are over; once is enough, unless more came."""
        lease = self.lease
        if not (lease.is_held or lease is self._surrendered or lease in self._owed):
            self._owed.append(lease)
        while self._owed:
            lease = self._owed.pop(0)
            try:
                taken = await self._driver.surrender(lease.worker_id)
            except BaseException:
                self._owed.insert(0, lease)
                raise
            self._surrendered = lease
            self._telemetry.claims_taken_over(taken)

    async def keep(
        self,
        *,
        leaving: asyncio.Event,
        over: asyncio.Event,
        on_surrendered: Callable[[], None],
        on_new: Callable[[Lease], None],
    ) -> None:
        """Give up what a lost lease held and, unless leaving, register anew; each until the store takes it."""
        while True:
            await first_of(self._is_due, over)
            if over.is_set():
                return
            self._is_due.clear()
            verb = "surrender"
            try:
                await self.surrender()
                on_surrendered()
                verb = "register"
                if not (leaving.is_set() or self.lease.is_held):
                    on_new(await self.register())
            except Exception as error:  # noqa: BLE001 - said, and repeated until the store is back
                self._is_due.set()
                self._telemetry.store_call_failed(verb, error)
                await first_of(over, within=self._backoff.failed())
            else:
                self._backoff.succeeded()
