"""One life of a worker, from its registration to its row's close: builds the parts and orders how they leave.

Every part is new in every life. The parts are tasks of one group that end by events, not by being cancelled; a part
that dies by a fault of ours is reported to the life, whose owner then drains. Made by `worker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ..domain.errors import Internal
from ..domain.snapshot import Due
from ..drivers.bulk import bulk_of
from ..drivers.protocol import Wake
from ..jobs.describe import job_type_docs
from ..jobs.stamp import working_tracer
from ..lifecycle.drain import DrainBudget, DrainNotice
from ..lifecycle.role import Life
from ..lifecycle.status import DrainPhase
from ..lifecycle.tasks import start_in
from ..observability.tracing import Spans
from .arrival import once_there
from .bulk import BulkRunner
from .claim_loop import ClaimLoop
from .desk import Desk
from .drain_watch import DrainWatch
from .heartbeat import Heartbeat
from .kit import Kit, housekeeping_of, maintenance_of, tellings_of
from .lease import Lease
from .leaving import Leaving
from .maintenance import Maintenance
from .registration import Registration
from .roster import Roster
from .run import Bench, fallback_of
from .scribe import Scribe
from .settler import Settler
from .showing import Showing
from .slot_return import SlotReturn
from .stall import StallWatch
from .tally import TallyKeeper
from .told import Told

_NEWS = frozenset({Wake.READY, Wake.DELAYED, Wake.REVOKED})
_CANCEL_FIX = "look for code that cancels tasks it did not create, like all those of asyncio.all_tasks()"


class Session:
    """The parts of one life."""

    def __init__(self, kit: Kit, life: Life) -> None:
        driver, options, telemetry = kit.driver, kit.options, kit.telemetry
        self.life = life
        self.roster = Roster()
        self.runs_told = Told(roster=self.roster, telemetry=telemetry, monotonic=kit.monotonic)
        self._kit = kit
        self._over = asyncio.Event()
        self._claims_ended = asyncio.Event()
        self.registration = Registration(
            driver=driver,
            options=options,
            names=kit.registry.names,
            telemetry=telemetry,
            clock=kit.boot_clock,
            roll=kit.roll,
        )
        self._showing = Showing(driver=driver, registration=self.registration, telemetry=telemetry)
        self._tally = TallyKeeper(driver=driver, telemetry=telemetry, roll=kit.roll)
        self._settler = Settler(
            driver=driver, telemetry=telemetry, roll=kit.roll, fallback=partial(fallback_of, roll=kit.roll)
        )
        self._bulk = BulkRunner(bulk_of(driver), telemetry=telemetry, leaving=life.is_leaving)
        self._tellings = tellings_of(kit, life)
        self._maintenance = self._make_maintenance()
        self._housekeeping = housekeeping_of(kit, life)
        self._scribe = Scribe(driver=driver, telemetry=telemetry)
        self._pool = ThreadPoolExecutor(max_workers=options.concurrency, thread_name_prefix="outlast.body")
        self._bench = self._make_bench()
        self._slots = SlotReturn(driver=driver, telemetry=telemetry, roll=kit.roll, on_returned=self._look)
        self._claims = ClaimLoop(
            driver=driver,
            registry=kit.registry,
            bench=self._bench,
            roster=self.roster,
            lease=lambda: self.registration.lease,
            on_late=self.registration.owes,
            on_limited=self._slots.put,
            leaving=life.is_leaving,
        )
        self._settler.carries(self._claims)
        self._watch = StallWatch(
            limit_seconds=options.loop_stall.total_seconds(),
            telemetry=telemetry,
            monotonic=kit.monotonic,
            on_blocked=self.roster.blocks,
        )
        self._heartbeat = self._make_heartbeat()
        self.leaving = Leaving(
            driver=driver,
            telemetry=telemetry,
            roster=self.roster,
            told=self.runs_told,
            heartbeat=self._heartbeat,
            settler=self._settler,
            slots=self._slots,
            registration=self.registration,
            budget=life.budget,
        )

    def outage(self) -> None:
        """Note that the store was away until now: others get a lease to say that they are there."""
        self._maintenance.outage()

    def ended_away(self) -> bool:
        """Say whether this life ended with the store away, or its lease lost: the next one begins with doubt."""
        has_lost = self.registration.worker_id is not None and not self.registration.lease.is_held
        return has_lost or self._maintenance.is_away

    def told(self, notice: DrainNotice) -> None:
        """Tell every held run that the worker drains; the instant it is cancelled at only comes forward."""
        self._tell(notice, cancel_at=self.life.budget.cancel_at)

    def _tell(self, notice: DrainNotice, *, cancel_at: float | None) -> None:
        self.runs_told.tell(notice, cancel_at=cancel_at, worker_id=int(self.registration.worker_id or 0))

    # --- the life ---------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Register, work until told to leave, leave in order."""
        lease = await once_there(
            self._introduce,
            within_seconds=self._kit.options.start.total_seconds(),
            leaving=self.life.is_leaving,
            monotonic=self._kit.monotonic,
            roll=self._kit.roll,
            on_back=self.outage,
        )
        if lease is None:
            return
        try:
            await self._heartbeat.start(lease, self.life.budget)
            try:
                async with self._kit.driver.listen(self._heard, news=_NEWS):
                    await self._work()
            finally:
                await self._heartbeat.stop(self.life.budget)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            await self.leaving.close_row()

    async def _introduce(self) -> Lease:
        """Say what this worker can run, then take an id: the last step is the one that cannot be taken back."""
        docs = job_type_docs(self._kit.registry, code_version=self._kit.options.code_version)
        await self._kit.driver.publish_job_types(docs)
        return await self.registration.register()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as parts:
            start_in(parts, self._guarded(self._settler.run), name="outlast.settle")
            start_in(parts, self._guarded(self._slots.run), name="outlast.slots")
            start_in(parts, self._guarded(self._scribe.run), name="outlast.scribe")
            start_in(parts, self._guarded(partial(self._watch.beat, self._over)), name="outlast.loop_beat")
            start_in(parts, self._guarded(partial(self._showing.run, self._over)), name="outlast.showing")
            start_in(parts, self._guarded(partial(self._tally.run, self._over)), name="outlast.tally")
            start_in(parts, self._guarded(self._keep_lease), name="outlast.lease")
            try:
                async with asyncio.TaskGroup() as runs:
                    start_in(runs, self._claim(), name="outlast.claims")
                    maintenance = self._maintenance
                    sweeps = (maintenance.promote, maintenance.sweep, maintenance.sweep_waits, maintenance.count)
                    for sweep in (*sweeps, self._bulk.bulk, self._tellings.tell):
                        start_in(runs, self._guarded(sweep), name=f"outlast.{sweep.__name__}")
                    start_in(runs, self._guarded(self._housekeeping.run), name="outlast.housekeeping")
                    await self._serve()
            finally:
                self._over.set()
                self._scribe.end()
                self._settler.give_up()
                self._slots.give_up()
        await self._tally.end()

    async def _serve(self) -> None:
        """Work until told to leave; then wait for what runs, or give it up when the time is over."""
        options, budget = self._kit.options, self.life.budget
        self._kit.telemetry.worker_started(
            int(self.registration.lease.worker_id),
            queues=[share.queue for share in options.queues],
            concurrency=options.concurrency,
            jobs=len(self._kit.registry),
        )
        self.life.running()
        await self.life.is_leaving.wait()
        self._claims.wake()
        self._showing.phase(DrainPhase.ACCEPT, budget)
        are_back = await budget.wait(self._claims_ended, until=_abandon_at)
        self._showing.phase(DrainPhase.INFLIGHT, budget)
        if not (are_back and await budget.wait(self._claims.is_empty, until=_abandon_at)):
            await self.leaving.abandon()
            self._claims.give_up()
        self.life.idle()
        self._showing.phase(DrainPhase.CLOSE, budget)
        await self.leaving.flush()
        await self.leaving.report()
        self._settler.give_up()

    async def _claim(self) -> None:
        try:
            await self._guarded(self._claims.run)
        finally:
            self._claims_ended.set()

    async def _keep_lease(self) -> None:
        await self.registration.keep(
            leaving=self.life.is_leaving,
            over=self._over,
            on_surrendered=self._maintenance.outage,
            on_new=self._registered_anew,
        )

    async def _guarded(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part; one that dies takes no run with it, its life is drained instead."""
        try:
            await part()
        except asyncio.CancelledError:
            # Parts end by events: this is a stranger's doing, or the life's own end, which has its failure by then.
            self.life.fail(Internal("a part of the worker was cancelled", fix=_CANCEL_FIX))
            raise
        except Exception as error:  # noqa: BLE001 - reported to the life's owner
            self.life.fail(error)

    # --- what its parts hear ----------------------------------------------------------------------------------------

    def _heard(self, wake: Wake) -> None:
        match wake:
            case Wake.READY:
                self._claims.wake()
            case Wake.DELAYED:
                self._maintenance.delayed()
            case Wake.REVOKED:
                self._heartbeat.nudge()
            case Wake.LISTENING:
                self._listens(is_listening=True)
            case Wake.LOST:
                self._listens(is_listening=False)
            case Wake.FINISHED | Wake.STAGED:
                pass  # not asked for

    def _look(self) -> None:
        self._claims.wake()

    def _found_due(self, due: Due) -> None:
        self._claims.gate.told(due)

    def _listens(self, *, is_listening: bool) -> None:
        if is_listening:
            self._kit.telemetry.listener_restored()
        else:
            self._kit.telemetry.listener_lost()
        self._claims.listens(is_listening=is_listening)
        self._maintenance.listens(is_listening=is_listening)
        self._showing.wakeup(is_listening=is_listening)

    def _lease_ended(self, lease: Lease) -> None:
        self.registration.owes(lease)
        self._settler.lease_ended()

    def _registered_anew(self, lease: Lease) -> None:
        self._heartbeat.use(lease)
        self._showing.again()
        self._claims.wake()

    # --- what its parts are made of ---------------------------------------------------------------------------------

    def _make_maintenance(self) -> Maintenance:
        return maintenance_of(
            self._kit,
            self.life,
            on_ready=self._look,
            on_due=self._found_due,
            may_reap=lambda: self.registration.lease.may_reap,
            on_bulk=self._bulk.wake,
            on_tell=self._tellings.wake,
        )

    def _make_bench(self) -> Bench:
        tracer = working_tracer()
        spans = None if tracer is None else Spans(tracer)
        desk = Desk(
            driver=self._kit.driver,
            options=self._kit.options,
            roster=self.roster,
            pool=self._pool,
            scribe=self._scribe,
            monotonic=self._kit.monotonic,
            timers=self._kit.timers,
            at=self._kit.at,
            spans=spans,
        )
        return Bench(
            options=self._kit.options,
            telemetry=self._kit.telemetry,
            settler=self._settler,
            pool=self._pool,
            roll=self._kit.roll,
            monotonic=self._kit.monotonic,
            client=self._kit.client,
            desk=desk,
            scribe=self._scribe,
            on_due=self._maintenance.due_in,
            on_wait=self._maintenance.wakes_in,
            on_fault=self.life.fail,
            on_told=self._tellings.wake,
            timers=self._kit.timers,
            at=self._kit.at,
            spans=spans,
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            driver=self._kit.driver,
            options=self._kit.options,
            telemetry=self._kit.telemetry,
            roster=self.roster,
            watch=self._watch,
            drain=DrainWatch(
                self.life,
                self.runs_told,
                tell=lambda notice: self._tell(notice, cancel_at=notice.cancel_at),
                monotonic=self._kit.monotonic,
            ),
            clock=self._kit.boot_clock,
            roll=self._kit.roll,
            beside=self._kit.beside(),
            on_over=self._lease_ended,
            on_death=self.life.fail,
            on_stall=self._kit.on_stall,
            on_asked=self._kit.on_asked,
        )


def _abandon_at(budget: DrainBudget) -> float | None:
    return budget.abandon_at
