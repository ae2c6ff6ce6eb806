"""The one exit of the worker: stores outcomes, in small batches as they come, until the store has answered for each.

A settle that fails is repeated while the lease under it lasts, then left to the reaper; one value that the store
refuses neither holds up nor fails its neighbours: a failure is stored in its place. A claim may ride along with a
batch. Runs `put`; one task of the worker runs `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.errors import OutlastError, RequestInvalid
from ..domain.job import ClaimedJob
from ..domain.outcome import DeadLettered, Held, Outcome, SettleAnswer, Settlement, Suspended
from ..domain.state import DeadReason, State
from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry
from .backoff import Backoff
from .ride import Ride
from .roster import Run

BATCH = 100  # settlements of one statement


@dataclass(slots=True, kw_only=True, eq=False)
class Pending:
    """One outcome on its way. A `fallback` is stored in its place once the store has refused its value.

    `on_answer` hears what was stored and the store's answer, None when it was left to the reaper. It must not raise.
    """

    run: Run
    outcome: Outcome
    on_answer: Callable[[Run, Outcome, SettleAnswer | None], None]
    is_unknown: bool = False
    fallback: Outcome | None = None

    @property
    def settlement(self) -> Settlement:
        """Give what is sent."""
        run, job = self.run, self.run.job
        outcome = self.fallback or self.outcome
        is_keyed = job.key is not None or job.calls_back
        plain = Settlement(job.token, outcome, is_keyed, job.parent_id is not None)
        if (recorder := run.recorder) is not None:
            forgets = recorder.forgets(is_end=isinstance(outcome, DeadLettered))
            return plain._replace(has_waits=run.may_have_waits, forgets=forgets, step=recorder.reached)
        return plain._replace(has_waits=True) if run.may_have_waits else plain

    def answered(self, answer: SettleAnswer | None) -> None:
        """Hand out the answer."""
        self.on_answer(self.run, self.fallback or self.outcome, answer)


class Rides(Protocol):
    """Claims that travel with a settle, in its statement."""

    def offer(self, queues: Sequence[str]) -> Ride | None:
        """Give a claim to send along, for the places that a settle frees in `queues` too; None for none now."""
        ...

    def arrived(self, ride: Ride, claimed: Sequence[ClaimedJob]) -> None:
        """Take what a claim brought, after the answers beside it were handed out."""
        ...

    def lost(self, ride: Ride) -> None:
        """Hear that the reply was lost: the claim may have been made."""
        ...


class Settler:
    """Takes outcomes and gives the store's answers. `fallback` gives what is stored of a run in a bad value's place."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        telemetry: Telemetry,
        roll: Callable[[], float],
        fallback: Callable[[Run, Exception], Outcome],
    ) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._backoff = Backoff(roll)
        self._fallback = fallback
        self._rides: Rides | None = None
        self._queue: list[Pending] = []
        self._came = asyncio.Event()
        self._given_up = asyncio.Event()
        self._lease_ended = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.is_idle.set()

    def carries(self, rides: Rides) -> None:
        """Take claims along from now on."""
        self._rides = rides

    def put(self, pending: Pending) -> None:
        """Have an outcome stored; its `on_answer` is called exactly once while `run` runs."""
        self._queue.append(pending)
        self.is_idle.clear()
        self._came.set()

    def lease_ended(self) -> None:
        """Look again at once: what was claimed under that lease is left."""
        self._lease_ended.set()

    def give_up(self) -> None:
        """Stop: what is not stored by now is left to whoever takes the claims over."""
        self._given_up.set()
        self._came.set()

    async def run(self) -> None:
        """Store what comes until told to give up."""
        while not self._given_up.is_set():
            await self._came.wait()
            self._came.clear()
            while self._queue and not self._given_up.is_set():
                batch, self._queue = self._queue[:BATCH], self._queue[BATCH:]
                await self._settle_batch(batch)
            if not self._queue:
                self.is_idle.set()
        left, self._queue = self._queue, []
        for pending in left:
            pending.answered(None)

    async def _settle_batch(self, batch: list[Pending]) -> None:
        """Store a batch; what could not be stored comes back into the queue, to be sent again after a pause."""
        held = {lease for lease in {pending.run.lease for pending in batch} if lease.is_held}
        open_ones = [pending for pending in batch if pending.run.lease in held or not self._is_left(pending)]
        if not open_ones:
            return
        left = await self._send(open_ones)
        if not left:
            self._backoff.succeeded()
            return
        self._queue = left + self._queue
        self._lease_ended.clear()
        await first_of(self._given_up, self._lease_ended, within=self._backoff.failed())

    async def _send(self, batch: list[Pending]) -> list[Pending]:
        """Send a batch and give what is left of it; one that fails for good is sent one by one, to find the culprit."""
        if (error := await self._try(batch)) is None:
            return []
        if len(batch) == 1:
            self._fall_back(batch[0], error)
            return batch
        if _may_pass(error):
            return batch
        left: list[Pending] = []
        for pending in batch:
            left += [pending] if self._given_up.is_set() else await self._send([pending])
        return left

    def _fall_back(self, pending: Pending, error: Exception) -> None:
        """Store a failure instead when it was the value that was refused; any other error is not the value's."""
        if pending.fallback is None and (_is_refused_value(error) or _is_refused_child(error, pending.outcome)):
            self._telemetry.settle_refused(pending.run.job)
            pending.fallback = self._fallback(pending.run, error)

    async def _try(self, batch: Sequence[Pending]) -> Exception | None:
        """Send one statement; on success every answer is handed out."""
        # A body that runs on after its attempt was closed keeps its place.
        freed = [pending.run.job.queue for pending in batch if not pending.run.is_body_running]
        ride = None if self._rides is None else self._rides.offer(freed)
        try:
            answers, claimed = await self._call([pending.settlement for pending in batch], ride)
        except BaseException as error:
            if self._rides is not None and ride is not None:
                self._rides.lost(ride)
            if not isinstance(error, Exception):
                raise
            self._telemetry.settle_failed(error, count=len(batch), will_retry=True)
            for pending in batch:
                pending.is_unknown = pending.is_unknown or not _is_refused_value(error)
            return error
        for pending, answer in zip(batch, answers, strict=True):
            if isinstance(pending.outcome, Held) and pending.outcome.or_dead and answer is SettleAnswer.SETTLED:
                await self._look_after(pending, pending.outcome)
            pending.answered(_read(pending, answer))
        if self._rides is not None and ride is not None:
            self._rides.arrived(ride, claimed)
        return None

    async def _look_after(self, pending: Pending, held: Held) -> None:
        """Look whether a job whose payload is refused was dead at once: nobody else says so of this attempt."""
        try:
            view = await self._driver.describe(pending.run.job.token.job_id)
        except Exception as error:  # noqa: BLE001 - said; the attempt is then told as held
            self._telemetry.store_call_failed("describe", error)
            return
        if view is not None and view.state is State.DEAD and held.error is not None:
            pending.fallback = DeadLettered(error=held.error, reason=DeadReason.TERMINAL)

    async def _call(
        self, settlements: Sequence[Settlement], ride: Ride | None
    ) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
        if ride is None:
            return await self._driver.settle(settlements), ()
        return await self._driver.settle_and_claim(settlements, ride.request)

    def _is_left(self, pending: Pending) -> bool:
        """Say whether a lease has run out over an outcome, which is then answered with None."""
        if pending.run.lease.is_held:
            return False
        self._telemetry.settle_left(pending.run.job)
        pending.answered(None)
        return True


def _may_pass(error: Exception) -> bool:
    """Say whether the store could not be reached: the whole batch may work later."""
    return isinstance(error, OutlastError) and error.retryable


def _is_refused_value(error: Exception) -> bool:
    """Say whether the store refused the values it was given; of everything else they are not the cause.

    Missing rights, a broken server or a fault of ours pass or are repaired; no result must be lost to them.
    """
    return isinstance(error, RequestInvalid)


def _is_refused_child(error: Exception, outcome: Outcome) -> bool:
    """Say whether a suspension was refused for a child that it calls: by a taken key, for one."""
    return isinstance(outcome, Suspended) and isinstance(error, OutlastError) and not error.retryable


def _read(pending: Pending, answer: SettleAnswer) -> SettleAnswer:
    """Read an answer in the light of an earlier call whose reply was lost.

    Under a lease that never lapsed nobody can have taken the claim over: `reaped` then means that the earlier call
    itself closed the attempt.
    """
    if answer is SettleAnswer.REAPED and pending.is_unknown and pending.run.lease.is_held:
        return SettleAnswer.SETTLED
    return answer
