"""Finds work: claims what can start now, by a call of its own or along with a settle.

Work is found by polling; a wake-up only makes the next look sooner. There is one claim at a time: the loop's, or the
one that rides along while outcomes are stored. Limited jobs come out of the gate, by a call of their own before the
claim. What is in doubt is `reconcile`'s, what becomes of a claim `intake`'s. One task of the worker runs `run`; it ends
by the leaving event, never by being cancelled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ..domain.job import ClaimedJob, ClaimToken
from ..drivers.protocol import ClaimRequest, JobDriver
from ..jobs.registry import Registry
from ..lifecycle.tasks import first_of, start_task
from .alone import AloneTurn
from .backoff import Backoff
from .gate import GateWatch
from .intake import Intake
from .lease import Lease
from .places import Places
from .reconcile import Reconciler
from .ride import Ride
from .roster import Roster
from .run import Bench

T = TypeVar("T")

_LOOK_SECONDS = 0.25  # how often a state is looked at that may change without an event
_MOST_ALONG = 500  # jobs of one claim that rides along: the outcomes beside it wait for its reply


class ClaimLoop:
    """The loop of one life of a worker.

    `lease` gives the registration in force; `on_late` hears of a lease under which claims came after its end.
    """

    def __init__(
        self,
        *,
        driver: JobDriver,
        registry: Registry,
        bench: Bench,
        roster: Roster,
        lease: Callable[[], Lease],
        on_late: Callable[[Lease], None],
        on_limited: Callable[[ClaimToken], None],
        leaving: asyncio.Event,
    ) -> None:
        self._driver = driver
        self._names = registry.names
        self._bench = bench
        self._roster = roster
        self._lease = lease
        self._on_late = on_late
        self._leaving = leaving
        self._options = bench.options
        self._places = Places(bench.options, on_freed=self._freed)
        self._backoff = Backoff(bench.roll)
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._turn = AloneTurn(
            driver=driver,
            telemetry=bench.telemetry,
            patience_seconds=bench.options.alone_after.total_seconds(),
            monotonic=bench.monotonic,
            roll=bench.roll,
        )
        self.gate = GateWatch(
            is_declared=registry.has_limits, monotonic=bench.monotonic, roll=bench.roll, on_news=self._news.set
        )
        self._reconciler = self._make_reconciler()
        self._intake = Intake(
            driver=driver,
            registry=registry,
            bench=bench,
            roster=roster,
            places=self._places,
            turn=self._turn,
            leaving=leaving,
            on_late=on_late,
            on_limited=on_limited,
            on_doubt=self._reconciler.doubt,
        )
        self._may_be_more = True
        self._limited: set[str] = set()  # queues of which only so many jobs run: the end of one may let another begin
        self._is_listening = False
        self._is_claiming = False
        self._has_seen_gate = False  # in the last look
        self._ride: Ride | None = None  # a claim that rides along with a settle, while it is under way
        self._ride_ended = asyncio.Event()
        self._brought: tuple[Ride, Sequence[ClaimedJob]] | None = None

    def _make_reconciler(self) -> Reconciler:
        return Reconciler(
            driver=self._driver,
            bench=self._bench,
            roster=self._roster,
            backoff=self._backoff,
            leaving=self._leaving,
            has_slots=lambda: self.gate.has_looked,
        )

    @property
    def is_empty(self) -> asyncio.Event:
        """Give the event that is set while no place is taken."""
        return self._places.is_empty

    def wake(self) -> None:
        """Look for work soon: something became ready, or the lease is new."""
        self._may_be_more = True
        self.gate.woken()
        self._news.set()

    def listens(self, *, is_listening: bool) -> None:
        """Say whether wake-ups arrive; without them the polls are closer."""
        self._is_listening = is_listening
        self.wake()

    def give_up(self) -> None:
        """Leave what has not ended to whoever takes its claims over."""
        self._reconciler.give_up()
        self._intake.carrier.give_up()

    async def run(self) -> None:
        """Claim and begin until told to leave, and waked then; what was claimed and not begun goes back."""
        while not self._leaving.is_set():
            await self._step(self._lease())
        await self._intake.hand_back()
        await self._ride_over()
        if self._reconciler.is_doubtful:
            await self._reconcile(self._lease())

    async def _step(self, lease: Lease) -> None:
        """Do what comes next: wait, reconcile, or claim; one thing at a time, and none beside a ride."""
        if self._ride is not None or self._brought is not None:
            await self._ride_over()
        elif not lease.may_claim:
            await first_of(self._leaving, self._news, within=_LOOK_SECONDS)
            self._news.clear()
        elif self._reconciler.is_due:
            await self._reconcile(lease)
        elif self._intake.runs_alone() or await self._is_held_back(lease):
            self._changed.clear()
            await first_of(self._leaving, self._changed, within=_LOOK_SECONDS)
        elif not await self._look(lease):
            await self._rest()

    # --- claiming ---------------------------------------------------------------------------------------------------

    async def _look(self, lease: Lease) -> bool:
        """Claim once, into the room there is; True when there may be more to claim at once."""
        if self._ride is not None or self._brought is not None or self._leaving.is_set():
            return True  # the last while the store was asked about the job that is to run alone
        self._news.clear()  # before either look: what is told meanwhile may be of what it has not seen
        self._has_seen_gate = False
        has_others = self._intake.has_others()
        # One place for the head of gate and queues: if that is the one that waits, nothing has to go back for it.
        is_for_one = self._turn.waits is not None and not has_others and not self._turn.is_due
        if self.gate.is_on and not await self._look_into_gate(lease, is_for_one=is_for_one):
            return True
        alone_ok = self._alone_ok()
        ride = self._ride_of(lease, most=1 if is_for_one else None, alone_ok=alone_ok)
        if ride is None:
            return False
        self._is_claiming = True
        try:
            try:
                claimed = await self._known(self._driver.claim(ride.request))
            except Exception as error:  # noqa: BLE001 - said, reconciled and repeated
                await self._lost(lease, error)
                return True
            self._backoff.succeeded()
            self._note(ride, claimed)
            if alone_ok and not (ride.request.room == 1 and claimed):
                self._turn.over()  # what is seen of it again in this claim is noted again
            await self._intake.take(claimed, ride)
        finally:
            self._is_claiming = False
        # The gate had no turn, or a part of the room: what the others leave is its own.
        return self._may_be_more or self.gate.is_wanted

    def _alone_ok(self) -> bool:
        """Say whether to ask for jobs that must run alone; an admission may just have handed the first one back."""
        return self._turn.waits is None or not self._intake.has_others()

    async def _look_into_gate(self, lease: Lease, *, is_for_one: bool) -> bool:
        """Admit limited jobs into a part of the room; False: nothing is to be claimed beside what came, or did not."""
        room = min(self._places.room(), 1) if is_for_one else self._places.room()
        most = self.gate.most(room, has_others=self._may_be_more and self.gate.has_looked) if room else 0
        ride = self._ride_of(lease, most=most, alone_ok=self._alone_ok()) if most else None
        if ride is None:
            return True
        self._is_claiming = True
        self._has_seen_gate = True
        self.gate.begins()
        try:
            try:
                admitted = await self._known(self._driver.admit(ride.request))
            except Exception as error:  # noqa: BLE001 - said, reconciled and repeated
                self.gate.woken()
                await self._lost(lease, error)
                return False
            self.gate.note(admitted)
            self._limited |= {job.queue for job in admitted.jobs if job.is_limited}
            await self._intake.take(admitted.jobs, ride)
        finally:
            self._is_claiming = False
        return not (self._intake.runs_alone() or self._leaving.is_set())

    def _ride_of(
        self, lease: Lease, *, freed: Sequence[str] = (), most: int | None = None, alone_ok: bool = True
    ) -> Ride | None:
        """Give a claim into the room there is, or will be once `freed` is given back; None without room."""
        shares = self._places.shares(freed)
        if not shares:
            return None
        room = self._places.room(freed)
        if most is not None:
            room = min(room, most)
        request = ClaimRequest(
            worker_id=lease.worker_id, shares=shares, names=self._names, room=room, alone_ok=alone_ok
        )
        return Ride(request=request, lease=lease, sent=self._bench.monotonic())

    def _note(self, ride: Ride, claimed: Sequence[ClaimedJob]) -> None:
        """Note whether a claim left anything: one that was not filled, in all and in each queue, found the end."""
        request, brought = ride.request, Counter(job.queue for job in claimed)
        limited = {job.queue for job in claimed if job.is_limited}
        self._limited = (self._limited - brought.keys()) | limited
        self._may_be_more = len(claimed) >= request.room or any(
            brought[share.queue] >= share.room for share in request.shares
        )

    async def _is_held_back(self, lease: Lease) -> bool:
        ask_every = self._options.poll_seconds(is_listening=self._is_listening)
        return self._intake.has_others() and await self._turn.holds_back(int(lease.worker_id), ask_every=ask_every)

    async def _known(self, claim: Coroutine[Any, Any, T]) -> T:
        """Claim; a caller that is cancelled meanwhile still learns what came, and hands it back."""
        call = start_task(claim, name="outlast.claim")
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            self._reconciler.doubt()
            await asyncio.wait({call})
            await self._reconcile(self._lease())
            raise

    # --- claims that ride along with a settle -----------------------------------------------------------------------

    def offer(self, queues: Sequence[str]) -> Ride | None:
        """Give a claim to send with a settle that frees places in `queues`; None when this is not the time for one."""
        lease = self._lease()
        is_free = self._ride is None and self._brought is None and not self._is_claiming
        may_be_more = self._may_be_more or not self._limited.isdisjoint(queues)
        if not is_free or not may_be_more or self._leaving.is_set() or not lease.may_claim:
            return None
        if self._reconciler.is_due:
            self._news.set()
            return None
        if self._turn.waits is not None or self._intake.runs_alone() or self.gate.is_wanted:
            return None
        self._ride = self._ride_of(lease, freed=queues, most=_MOST_ALONG)
        return self._ride

    def arrived(self, ride: Ride, claimed: Sequence[ClaimedJob]) -> None:
        """Begin what a ride brought; what needs a decision or a call to the store is left to the loop."""
        self._ride = None
        self._note(ride, claimed)
        left = self._intake.take_at_once(claimed, ride)
        if left is not None:
            self._brought = (ride, left)
        self._ride_ended.set()
        if self._brought is not None or (self._may_be_more and self._places.room()):
            self._look_up()

    def lost(self, ride: Ride) -> None:
        """Note that a ride's reply was lost; under a lease that is over by now, what it may have brought goes back."""
        self._ride = None
        self._reconciler.doubt()
        if not ride.lease.is_held:
            self._on_late(ride.lease)
        self._ride_ended.set()
        self._look_up()

    def _look_up(self) -> None:
        self._news.set()
        self._changed.set()

    async def _ride_over(self) -> None:
        """Wait until no ride is under way, and take what the last one left to the loop."""
        while self._ride is not None:
            self._ride_ended.clear()
            await self._ride_ended.wait()
        if self._brought is not None:
            ride, claimed = self._brought
            try:
                await self._intake.take(claimed, ride)
            finally:
                self._brought = None

    # --- what is in doubt -------------------------------------------------------------------------------------------

    async def _lost(self, lease: Lease, error: Exception) -> None:
        """Note a claim whose reply was lost; under a lease that is over by now, what it may have brought goes back."""
        self._reconciler.doubt()
        self._bench.telemetry.claim_failed(error)
        if not lease.is_held:
            self._on_late(lease)
        await first_of(self._leaving, within=self._backoff.failed())

    async def _reconcile(self, lease: Lease) -> None:
        """Hand back what the store says this worker holds and it does not; until it is done, nothing is claimed."""
        self._is_claiming = True
        try:
            await self._reconciler.run(lease)
        finally:
            self._is_claiming = False

    async def _rest(self) -> None:
        """Wait for news, at most one poll, jittered so that a fleet does not look at once.

        Leaving is told as news, too: a job starts some turns of the loop sooner when one event is waited for.
        """
        if self._leaving.is_set():
            return  # and the news of it may be cleared already
        poll = self._options.poll_seconds(is_listening=self._is_listening) * (1 - self._bench.roll() / 4)
        # Without room the gate was not looked into: that its time has come changes nothing.
        await first_of(self._news, within=self.gate.rest(poll) if self._has_seen_gate else poll)
        self._news.clear()

    def _freed(self) -> None:
        self._changed.set()
        if self._ride is not None:
            return  # the place is in the claim that is under way
        is_gate_next = self.gate.is_wanted or (self.gate.is_timed and not self._has_seen_gate)
        if self._may_be_more or self._turn.waits is not None or is_gate_next:
            self._news.set()
