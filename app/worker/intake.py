"""What becomes of a claimed job: begun, begun alone, or handed back at once.

A job one short of its crash budget begins only while nothing else runs, by the rule of `alone`. Owns the places and
the roster's entries of what it begins; a hand-back that fails is left to the reconciliation. Driven by the claim loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..domain.errors import Internal
from ..domain.job import ClaimedJob, ClaimToken
from ..domain.outcome import SettleAnswer
from ..drivers.protocol import JobDriver
from ..jobs.registry import Registry
from ..lifecycle.tasks import first_of
from .alone import AloneTurn
from .backoff import Backoff
from .lease import Lease
from .places import Places
from .ride import Ride
from .roster import Roster, Run
from .run import Bench, Carrier
from .run_signal import RunSignal


class Intake:
    """Takes claims in. `on_late` hears of a lease whose claims came after its end, `on_doubt` of a lost hand-back.

    `on_limited` hears of each limited job that has no body here any more: its slots are to be given back.
    """

    def __init__(
        self,
        *,
        driver: JobDriver,
        registry: Registry,
        bench: Bench,
        roster: Roster,
        places: Places,
        turn: AloneTurn,
        leaving: asyncio.Event,
        on_late: Callable[[Lease], None],
        on_limited: Callable[[ClaimToken], None],
        on_doubt: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._registry = registry
        self._bench = bench
        self._roster = roster
        self._places = places
        self._turn = turn
        self._leaving = leaving
        self._on_late = on_late
        self._on_limited = on_limited
        self._on_doubt = on_doubt
        self._backoff = Backoff(bench.roll)
        self._grace_seconds = bench.options.cancel_grace.total_seconds()
        self._alone: Run | None = None
        self._unbegun: list[Run] = []  # told to stop before they began, and to go back
        self.carrier = Carrier(bench, on_over=self._let_go)

    def has_others(self) -> bool:
        """Say whether any attempt is open here; a body that runs on after its attempt was closed is none."""
        return self._places.taken > 0 and self._roster.has_open()

    def runs_alone(self) -> bool:
        """Say whether an attempt is open that must have the worker to itself."""
        if self._alone is not None and self._alone.is_settled:
            self._alone = None
        return self._alone is not None

    def take_at_once(self, claimed: Sequence[ClaimedJob], ride: Ride) -> Sequence[ClaimedJob] | None:
        """Begin what was claimed, when there is nothing to decide; gives what `take` is to be called with, if it is.

        From the instant a run is held the heartbeat's thread may tell it to stop: `take` hands back those it has told.
        """
        if self._leaving.is_set() or not ride.lease.is_held or any(job.must_run_alone for job in claimed):
            return claimed
        runs = [self._run_of(job, ride) for job in claimed]
        for run in runs:
            self._hold(run)
        self._unbegun += [run for run in runs if not self.carrier.begin(run)]
        return () if self._unbegun else None

    async def take(self, claimed: Sequence[ClaimedJob], ride: Ride) -> None:
        """Begin what was claimed: one job that must run alone if nothing else runs, else all others.

        The rest goes back at once, and so does everything once leaving. What came after its lease had ended belongs to
        nobody: it is surrendered once more, before somebody takes this worker for one that crashed.
        """
        told, self._unbegun = self._unbegun, []
        if not ride.lease.is_held:
            if claimed or told:
                self._on_late(ride.lease)
            await self._release(told)
            return
        alone = [job for job in claimed if job.must_run_alone]
        chosen = [job for job in claimed if not job.must_run_alone] if self.has_others() or not alone else alone[:1]
        runs = {job.token.fence: self._run_of(job, ride) for job in claimed}
        for run in runs.values():
            self._hold(run)
        begun = [] if self._leaving.is_set() else [runs.pop(job.token.fence) for job in chosen]
        is_alone = bool(begun) and begun[0].job.must_run_alone
        unbegun = [] if is_alone else [run for run in begun if not self.carrier.begin(run)]
        await self._release((*told, *runs.values(), *unbegun))
        for token in (job.token for job in alone if job.token.fence in runs):
            self._turn.handed_back(token.job_id)
        if is_alone:
            await self._begin_alone(begun[0])

    async def hand_back(self) -> None:
        """Hand back, once leaving, what a drain told before it was begun: also what waits for its body to be called."""
        await self._release(self.carrier.give_back())

    def _hold(self, run: Run) -> None:
        self._roster.add(run)
        self._places.take(run.job.queue)

    def _let_go(self, run: Run) -> None:
        if self._roster.remove(run):
            self._places.give(run.job.queue)
            if run.job.has_slots:
                self._on_limited(run.job.token)

    def _run_of(self, job: ClaimedJob, ride: Ride) -> Run:
        if (handle := self._registry.get(job.name)) is None:
            raise Internal(f"a claim brought the job type {job.name!r}", fix="report it: that name was not asked for")
        signal = RunSignal(
            grace_seconds=self._grace_seconds,
            may_cancel=handle.policy.abort == "cancel" and not handle.is_sync,
            monotonic=self._bench.monotonic,
            timers=self._bench.timers,
        )
        return Run(job=job, handle=handle, lease=ride.lease, signal=signal, claimed_at=ride.sent)

    async def _release(self, runs: Sequence[Run]) -> None:
        """Hand back claims that were never begun; what fails here is reconciled."""
        tokens = [run.job.token for run in runs if run.is_held]
        for run in runs:
            self._let_go(run)
        if not tokens:
            return
        try:
            await self._driver.release(tokens, cause="drain")
        except Exception as error:  # noqa: BLE001 - said; the reconciliation that follows does it again
            self._on_doubt()
            self._bench.telemetry.store_call_failed("release", error)

    async def _begin_alone(self, run: Run) -> None:
        """Record that a job runs alone, so that a crash is its own, and begin it."""
        self._alone = run
        while run.is_held and not self._leaving.is_set():
            try:
                if not await self._driver.isolate(run.job.token):
                    run.superseded_by = run.superseded_by or SettleAnswer.REAPED
                break
            except Exception as error:  # noqa: BLE001 - said and repeated
                self._bench.telemetry.store_call_failed("isolate", error)
                await first_of(self._leaving, within=self._backoff.failed())
        self._backoff.succeeded()
        if (self._leaving.is_set() and run.is_held) or not self.carrier.begin(run):
            await self._release([run])
