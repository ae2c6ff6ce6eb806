"""Finds work: claims what can start now, begins it, and hands back what cannot.

Work is found by polling; a wake-up only makes the next look sooner. After a claim whose reply was lost it first hands
back what the store says this worker holds and it does not. A job one short of its crash budget waits until it has the
worker to itself. One task of the worker runs `run`; it ends by the leaving event, never by being cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..domain.errors import Internal
from ..domain.job import ClaimedJob
from ..domain.outcome import SettleAnswer
from ..drivers.protocol import ClaimRequest, JobDriver
from ..jobs.registry import Registry
from ..lifecycle.tasks import first_of, start_in, start_task
from .backoff import Backoff
from .lease import Lease
from .places import Places
from .roster import Roster, Run
from .run import Bench, carry
from .run_signal import RunSignal

_LEASE_LOOK_SECONDS = 0.25


class ClaimLoop:
    """The loop of one life of a worker. `lease` gives the registration in force."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        registry: Registry,
        bench: Bench,
        roster: Roster,
        lease: Callable[[], Lease],
        leaving: asyncio.Event,
    ) -> None:
        self._driver = driver
        self._registry = registry
        self._names = registry.names
        self._bench = bench
        self._roster = roster
        self._lease = lease
        self._leaving = leaving
        self._options = bench.options
        self._places = Places(bench.options, on_freed=self._freed)
        self._backoff = Backoff(bench.roll)
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._lonely: list[Run] = []
        self._is_doubtful = False
        self._may_be_more = True
        self._is_listening = False

    @property
    def is_empty(self) -> asyncio.Event:
        """Give the event that is set while no place is taken."""
        return self._places.is_empty

    def wake(self) -> None:
        """Look for work soon: something became ready, or the lease is new."""
        self._may_be_more = True
        self._news.set()

    def listens(self, *, is_listening: bool) -> None:
        """Say whether wake-ups arrive; without them the polls are closer."""
        self._is_listening = is_listening
        self.wake()

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Claim and begin until told to leave; what was claimed and not begun then goes back.

        Runs become tasks of `group` and are waited for there.
        """
        self._group = group
        while not self._leaving.is_set():
            if self._lonely:
                await self._run_alone(self._lonely[0])
            elif not self._lease().may_claim:
                await first_of(self._leaving, self._news, within=_LEASE_LOOK_SECONDS)
                self._news.clear()
            elif not await self._look():
                await self._rest()
        await self._release(self._lonely)
        self._lonely.clear()
        if self._is_doubtful:
            await self._reconcile(self._lease())

    # --- claiming ---------------------------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Claim once, into the room there is; True when there may be more to claim at once."""
        lease, room = self._lease(), self._places.room()
        if room == 0:
            return False
        if self._is_doubtful and not await self._reconcile(lease):
            return True
        self._news.clear()
        shares = self._places.shares()
        request = ClaimRequest(worker_id=lease.worker_id, shares=shares, names=self._names, room=room)
        sent = self._bench.monotonic()
        try:
            claimed = await self._claim(request)
        except Exception as error:  # noqa: BLE001 - said, reconciled and repeated
            await self._failed(error)
            return True
        self._backoff.succeeded()
        brought = {share.queue: 0 for share in shares}
        for job in claimed:
            brought[job.queue] = brought.get(job.queue, 0) + 1
        self._may_be_more = len(claimed) >= room or any(brought[share.queue] >= share.room for share in shares)
        await self._take(claimed, lease, sent)
        return self._may_be_more

    async def _claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
        """Claim; a caller that is cancelled meanwhile still learns what came, and hands it back."""
        call = start_task(self._driver.claim(request), name="outlast.claim")
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            self._is_doubtful = True
            await asyncio.wait({call})
            await self._reconcile(self._lease())
            raise

    async def _failed(self, error: Exception) -> None:
        self._is_doubtful = True
        self._bench.telemetry.claim_failed(error)
        await first_of(self._leaving, within=self._backoff.failed())

    async def _reconcile(self, lease: Lease) -> bool:
        """Hand back what the store says this worker holds and it does not."""
        try:
            await self._driver.reconcile(lease.worker_id, self._roster.tokens(lease))
        except Exception as error:  # noqa: BLE001 - said and repeated before the next claim
            await self._failed(error)
            return False
        self._is_doubtful = False
        return True

    async def _rest(self) -> None:
        """Wait for news, at most one poll, jittered so that a fleet does not look at once."""
        poll = self._options.poll_seconds(is_listening=self._is_listening)
        await first_of(self._leaving, self._news, within=poll * (1 - self._bench.roll() / 4))
        self._news.clear()

    def _freed(self) -> None:
        self._changed.set()
        if self._may_be_more:
            self._news.set()

    # --- beginning --------------------------------------------------------------------------------------------------

    async def _take(self, claimed: Sequence[ClaimedJob], lease: Lease, sent: float) -> None:
        """Begin what was claimed, or put it aside to run alone; once leaving, all of it goes back."""
        back: list[Run] = []
        for job in claimed:
            run = self._run_of(job, lease, sent)
            self._roster.add(run)
            self._places.take(job.queue)
            if self._leaving.is_set():
                back.append(run)
            elif job.must_run_alone:
                self._lonely.append(run)
            else:
                self._begin(run)
        await self._release(back)

    def _run_of(self, job: ClaimedJob, lease: Lease, sent: float) -> Run:
        if (handle := self._registry.get(job.name)) is None:
            raise Internal(f"a claim brought the job type {job.name!r}", fix="report it: that name was not asked for")
        signal = RunSignal(
            grace_seconds=self._options.cancel_grace.total_seconds(),
            may_cancel=handle.policy.abort == "cancel" and not handle.is_sync,
            monotonic=self._bench.monotonic,
        )
        return Run(job=job, handle=handle, lease=lease, signal=signal, claimed_at=sent)

    def _begin(self, run: Run) -> None:
        start_in(self._group, self._carry(run), name=f"outlast.carry.{run.job.token.job_id}")

    async def _carry(self, run: Run) -> None:
        await carry(run, self._bench)
        if not run.has_begun and not run.is_settled:
            await self._release([run])
        elif not run.is_body_running:
            self._let_go(run)

    def _let_go(self, run: Run) -> None:
        self._roster.remove(run)
        self._places.give(run.job.queue)

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
            self._is_doubtful = True
            self._bench.telemetry.claim_failed(error)

    # --- alone ------------------------------------------------------------------------------------------------------

    async def _run_alone(self, run: Run) -> None:
        """Wait until all other work has ended, record that the job runs alone, run it, and wait for its end."""
        if not await self._until_taken(len(self._lonely)) and run.is_held:
            return
        if run.is_held:
            try:
                is_alone = await self._driver.isolate(run.job.token)
            except Exception as error:  # noqa: BLE001 - said and repeated
                self._bench.telemetry.claim_failed(error)
                await first_of(self._leaving, within=self._backoff.failed())
                return
            if not is_alone:
                run.superseded_by = run.superseded_by or SettleAnswer.REAPED
        self._backoff.succeeded()
        if self._leaving.is_set() and run.is_held:
            return
        self._lonely.remove(run)
        self._begin(run)
        await self._until_taken(len(self._lonely))

    async def _until_taken(self, count: int) -> bool:
        """Wait until no more than `count` places are taken; False once leaving."""
        while self._places.taken > count:
            self._changed.clear()
            await first_of(self._leaving, self._changed)
            if self._leaving.is_set():
                return False
        return True
