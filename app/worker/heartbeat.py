"""The heartbeat: a thread with its own loop and its own connection that renews the worker's lease.

Nothing a body does to the worker's loop delays it. Each renewal also brings the claims that are no longer this
worker's. It judges the lease by itself, without the store, and watches the worker's loop. It runs until told to stop,
which is after the last body has ended. Started and stopped by `session`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TypeVar

from ..domain.drain import DrainReport
from ..domain.job import ClaimToken
from ..domain.snapshot import Renewal
from ..drivers.protocol import HeartbeatStore, JobDriver
from ..lifecycle.drain import DrainBudget
from ..lifecycle.tasks import first_of, start_in, start_on
from ..observability.telemetry import Telemetry
from ..steps.repeat import until_known
from .backoff import Backoff
from .beside import Beside
from .drain_watch import DrainWatch
from .lease import Lease
from .options import WorkerOptions
from .roster import Roster
from .stall import StallWatch

T = TypeVar("T")

_LOOK_SECONDS = 0.15
_STOP_SECONDS = 5.0
ABANDONED_SECONDS = 3.0  # how long abandoned claims stay this worker's after the process is gone


class Heartbeat:
    """The heartbeat of one life of a worker.

    `beside` is the thread. `on_over` is called on the worker's loop when a lease is over; `on_death` when the
    thread ends by itself; `on_stall` in the thread, once the worker's loop is beyond help; `on_asked` there, too, with
    the name of whoever asked through the store for a drain.
    """

    def __init__(
        self,
        *,
        driver: JobDriver,
        options: WorkerOptions,
        telemetry: Telemetry,
        roster: Roster,
        watch: StallWatch,
        drain: DrainWatch,
        clock: Callable[[], float],
        roll: Callable[[], float],
        beside: Beside,
        on_over: Callable[[Lease], None],
        on_death: Callable[[BaseException], None],
        on_stall: Callable[[], None],
        on_asked: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._roster = roster
        self._watch = watch
        self._drain = drain
        self._clock = clock
        self._every = options.heartbeat.total_seconds()
        self._patience = options.lease.total_seconds() / 3
        self._look_every = min(_LOOK_SECONDS, options.lease.total_seconds() / 20)
        self._backoff = Backoff(roll, lease_seconds=options.lease.total_seconds())
        self._on_over = on_over
        self._on_death = on_death
        self._on_stall = on_stall
        self._on_asked = on_asked
        self._is_asked = False
        self._worker_loop = asyncio.get_running_loop()
        self._lease: Lease | None = None
        self._lost: list[Lease] = []  # under their ids a drain may have been asked for that nobody has heard of
        self._is_abandoned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # Bound to the thread's loop where they are first waited for, which is there.
        self._nudged = asyncio.Event()
        self._stopping = asyncio.Event()
        self._one_call = asyncio.Lock()
        self._store: HeartbeatStore | None = None
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._beside = beside

    # --- on the worker's loop -------------------------------------------------------------------------------------

    async def start(self, lease: Lease, budget: DrainBudget) -> None:
        """Start the thread and return once its connection is open; raises what opening it raises."""
        self._lease = lease
        self._beside.start(self._beat, self._left)
        try:
            await asyncio.wrap_future(self._opened)
        except BaseException:
            await self.stop(budget)
            raise

    def use(self, lease: Lease) -> None:
        """Renew another lease from now on; the runs of one that is over are told, if nobody has looked at it yet."""
        before, self._lease = self._lease, lease
        if before is not None and not before.is_held:
            self._over(before)
            self._lost.append(before)
        self.nudge()

    def nudge(self) -> None:
        """Renew now: a claim may have been revoked. Any thread."""
        self._call(self._nudged.set)

    async def abandon(self, tokens: Sequence[ClaimToken], lease: timedelta) -> int:
        """Mark claims whose bodies will not end and let the lease end after `lease`; nothing is renewed after that."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return 0
        return await asyncio.wrap_future(start_on(loop, self._abandon(tokens, lease)))

    async def report(self, report: DrainReport) -> None:
        """Keep a drain's report, over the connection that a busy pool cannot hold up."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            await asyncio.wrap_future(start_on(loop, self._report(report)))

    async def stop(self, budget: DrainBudget) -> None:
        """End the thread and wait for it, a bounded time: a connection to nowhere does not keep a worker."""
        self._call(self._stopping.set)
        with suppress(TimeoutError):
            async with budget.within(_STOP_SECONDS):
                # Waited for without being cancelled with the wait: the thread sets it when it does end.
                await asyncio.wait({asyncio.wrap_future(self._ended)})
                self._beside.join()  # its last instruction was to say so

    def _call(self, step: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the thread has ended
                loop.call_soon_threadsafe(step)

    # --- in the thread --------------------------------------------------------------------------------------------

    def _left(self, error: BaseException | None) -> None:
        if error is not None:
            self._tell_worker(partial(self._on_death, error))
            if not self._opened.done():
                self._opened.set_exception(error)
        self._ended.set_result(None)

    async def _beat(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            start_in(group, self._look(), name="outlast.heartbeat.look")
            start_in(group, self._renew_all(), name="outlast.heartbeat.renew")

    async def _renew_all(self) -> None:
        """Keep a connection and renew over it; one that fails is closed, and another opened after a pause."""
        while not self._stopping.is_set():
            try:
                async with self._driver.open_heartbeat() as store:
                    self._store = store
                    self._open_up()
                    await self._renew_over(store)
            except Exception as error:  # noqa: BLE001 - said and repeated, except at the start, which then fails
                self._store = None
                if not self._opened.done():
                    self._opened.set_exception(error)
                    self._stopping.set()
                    return
                self._telemetry.heartbeat_failed(error)
                await first_of(self._stopping, within=self._backoff.failed())

    def _open_up(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    async def _renew_over(self, store: HeartbeatStore) -> None:
        while not self._stopping.is_set():
            self._nudged.clear()
            lease = self._lease
            if lease is not None and lease.is_held and not self._is_abandoned:
                await self._renew(store, lease)
                self._backoff.succeeded()
                await self._hear_the_last(store)
            await first_of(self._stopping, self._nudged, within=self._every)

    async def _renew(self, store: HeartbeatStore, lease: Lease) -> None:
        async with self._one_call, asyncio.timeout(self._patience):
            held = self._roster.tokens(lease)
            sent = self._clock()
            renewal = await store.renew(lease.worker_id, held)
        if not renewal.is_held:
            self._over(lease)
            return
        lease.renewed(sent)
        self._roster.revoked(renewal.revoked)
        self._heard(renewal)

    async def _hear_the_last(self, store: HeartbeatStore) -> None:
        """Ask once more under each id that this worker lost: whoever asked it to drain meant this process."""
        while self._lost:
            async with self._one_call, asyncio.timeout(self._patience):
                self._heard(await store.renew(self._lost[0].worker_id, ()))
            del self._lost[0]

    def _heard(self, renewal: Renewal) -> None:
        if renewal.drain_asked_by is not None and not self._is_asked:
            self._is_asked = True
            self._on_asked(renewal.drain_asked_by)

    async def _abandon(self, tokens: Sequence[ClaimToken], lease: timedelta) -> int:
        self._is_abandoned = True
        held = self._lease
        if held is None:
            return 0
        return await self._last(lambda store: store.abandon(held.worker_id, tokens, lease))

    async def _report(self, report: DrainReport) -> None:
        await self._last(lambda store: store.report_drain(report))

    async def _last(self, call: Callable[[HeartbeatStore], Awaitable[T]]) -> T:
        """Make a call for which there is no later chance: again when it was cut, and without waiting for a renewal.

        After a renewal that failed there is no connection for a while; then it has one of its own.
        """

        async def once() -> T:
            async with self._one_call:
                if self._store is not None:
                    return await call(self._store)
                async with self._driver.open_heartbeat() as store:
                    return await call(store)

        return await until_known(once)

    async def _look(self) -> None:
        """Judge the lease, the drain and the worker's loop, a few times a second, whatever the connection does."""
        while not self._stopping.is_set():
            lease = self._lease
            if lease is not None and not (lease.is_held or self._is_abandoned):
                self._over(lease)
            if (left := self._drain.look()) is not None:
                await self._abandon_here(left)
            if not self._watch.look() and not self._drain.is_bounded():
                self._stopping.set()
                self._on_stall()
            await first_of(self._stopping, within=self._look_every)

    async def _abandon_here(self, left: float) -> None:
        """Mark what runs while the worker's loop cannot; what fails is left to the lease, which then runs out."""
        lease = self._lease
        tokens = () if lease is None else self._roster.tokens(lease)
        try:
            async with asyncio.timeout(left):
                await self._abandon(tokens, timedelta(seconds=left + ABANDONED_SECONDS))
                report = None if lease is None else self._drain.report(lease.worker_id)
                if report is not None:
                    await self._report(report)
        except Exception as error:  # noqa: BLE001 - said; there is no later chance
            self._telemetry.store_call_failed("abandon", error)

    def _over(self, lease: Lease) -> None:
        """Tell every run, in this thread so that a blocked loop delays none, then the worker."""
        if lease.end():
            self._telemetry.worker_lease_over(int(lease.worker_id), held=self._roster.lose(lease))
            self._tell_worker(partial(self._on_over, lease))

    def _tell_worker(self, step: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the worker's loop has closed
            self._worker_loop.call_soon_threadsafe(step)
