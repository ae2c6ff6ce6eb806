"""The vocabulary of the system: what a job store does, verb by verb.

Every verb is one atomic move along the table in `domain.state`. Verbs that act for a worker are fenced: they match the
whole claim token, require the worker's lease to be unexpired, at the store, in the statement itself, and answer what
they did; zero rows is never taken for success. Row times are the store's. Errors are `OutlastError`s: a store that
cannot be reached is `DriverUnavailable`, and then whether the write took place is unknown. Called by `jobs`, `worker`,
`control`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from ..domain.audit import AuditEntry
from ..domain.drain import DrainReport
from ..domain.job import ClaimedJob, ClaimToken, Enqueued, JobId, NewJob, WorkerId
from ..domain.outcome import CancelVerdict, SettleAnswer, Settlement
from ..domain.snapshot import (
    Due,
    Expired,
    JobTypeDoc,
    Reaped,
    Renewal,
)
from ..domain.step import RetryMode
from .actions import ActionStore
from .capabilities import Capabilities
from .claims import ClaimRequest, QueueShare
from .fleet import FleetStore
from .flow import FlowStore
from .limits import LimitStore
from .purging import PurgeQuery as PurgeQuery  # noqa: PLC0414 - a word of this vocabulary
from .purging import PurgeStore
from .queues import QueueStore
from .reading import ReadStore
from .requests import RequestStore
from .runs import RunStore

__all__ = ["NEWS", "ClaimRequest", "HeartbeatStore", "JobDriver", "PurgeQuery", "QueueShare", "Wake"]


class Wake(StrEnum):
    """What a listener hears. A wake-up is only a hint to look sooner; it carries no data."""

    READY = "ready"
    DELAYED = "delayed"
    REVOKED = "revoked"
    FINISHED = "finished"
    STAGED = "staged"
    LOST = "lost"
    LISTENING = "listening"


# What happens to jobs; the other two say whether it is heard.
NEWS = frozenset({Wake.READY, Wake.DELAYED, Wake.REVOKED, Wake.FINISHED, Wake.STAGED})


class HeartbeatStore(Protocol):
    """The verbs of the heartbeat thread, on a connection of its own, used from that thread's loop alone."""

    async def renew(self, worker_id: WorkerId, held: Sequence[ClaimToken]) -> Renewal:
        """Extend an unexpired lease by its own length and answer which of the claims in `held` are gone.

        A lease that has passed, reaped or not, is refused (`is_held=False`): it never comes back. Who asked for a drain
        is said all the same: the worker may not have heard it in time, and live on under another id.
        """
        ...

    async def abandon(self, worker_id: WorkerId, tokens: Sequence[ClaimToken], lease: timedelta) -> int:
        """Mark claims whose bodies will not end as abandoned and let the worker's lease end after `lease`.

        Fenced. Whoever takes them over reports `interrupted`, cause `abandoned`. Gives the number marked. Claims not
        named, which never reached a blocked worker, are returned like those of a closed one: the drain shows its end.
        """
        ...

    async def report_drain(self, report: DrainReport) -> None:
        """Keep what became of a drained worker's runs; a later report of the worker takes the place of an earlier."""
        ...


class JobDriver(
    ActionStore, FleetStore, FlowStore, LimitStore, PurgeStore, QueueStore, ReadStore, RequestStore, RunStore, Protocol
):
    """A store of jobs, and of the workers that run them."""

    @property
    def capabilities(self) -> Capabilities:
        """Give what this driver can do."""
        ...

    async def open(self) -> None:
        """Make the store usable; refuses with `SCHEMA_OUTDATED` when its schema is older than the code."""
        ...

    async def close(self) -> None:
        """Give every connection back. A closed driver answers `DRIVER_UNAVAILABLE`."""
        ...

    async def ping(self) -> None:
        """Prove that the store answers, or raise."""
        ...

    # --- producers ---

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Store one job, durable when this returns.

        A key held by another job (live, or ended within its window) gives that job's id with `deduped`, or
        `JOB_DUPLICATE` (detail `existing_id`) under `on_conflict="error"`, or `IDEMPOTENCY_MISMATCH` (detail
        `existing_id`) when the fingerprint differs. A known `source_id` (90 days) gives the first job, deduped.
        A new job for a queue at its maximum depth is refused with `QUEUE_FULL`. Repeating the same id is safe.
        """
        ...

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """Store up to 50,000 jobs, all or none.

        Answers in order. One refused job refuses the batch, its `index` in the details.
        """
        ...

    # --- workers ---

    async def surrender(self, worker_id: WorkerId) -> tuple[Reaped, ...]:
        """Give back every claim of a worker that judged its own lease over.

        They are recorded as `lease_lost`, counted in no budget, and the worker is closed. What a reaper already took
        stays as the reaper recorded it.
        """
        ...

    async def publish_job_types(self, types: Sequence[JobTypeDoc]) -> None:
        """Show the job types a worker serves; the newest publication of a name stands."""
        ...

    async def claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
        """Take ready jobs: priority, then resumed before new, then the order of becoming ready.

        Never from paused queues, never more of a queue than may run at once, never names the worker does not know;
        nothing for a worker whose lease has passed or that is closed. `QUEUES_EMPTY` without a share. Committed
        synchronously: a token that came back is on disk.
        """
        ...

    async def release(self, tokens: Sequence[ClaimToken], *, cause: str) -> int:
        """Hand claims back that were never begun.

        Ready in the resumed lane, uncounted, no ledger row. Fenced. Gives the number released.
        """
        ...

    async def reconcile(
        self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None = None
    ) -> int:
        """Hand back what the store says this worker holds and it does not: claims whose reply was lost. Uncounted.

        Only claims made before an instant of the store's clock, when one is given: a call that its caller gave up on
        can still take place, and must not find what was claimed since.
        """
        ...

    async def isolate(self, token: ClaimToken) -> bool:
        """Record that a job one short of its crash budget now runs alone in its worker.

        Fenced; False: the claim is gone.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
        """Close attempts with their outcomes, one commit, answers in order.

        Each is fenced by its whole token and its worker's unexpired lease; one that is superseded leaves the others
        settled. One that cannot be stored fails alone with an exception only if given alone; in a batch, callers
        repeat one by one. Frees keys in the same commit.
        """
        ...

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
        """Close attempts as `settle` does and take ready jobs as `claim` does, one commit for both.

        The halves are fenced apart: a superseded settlement leaves the claim, and either worker's lease only its own.
        They fail together. What a settlement makes ready may be left to a later claim. After a failure the settlements
        may be repeated, and the claim has to be reconciled. Where a settlement frees a place of a limited queue the two
        may be two commits.
        """
        ...

    def open_heartbeat(self) -> AbstractAsyncContextManager[HeartbeatStore]:
        """Open the heartbeat's own connection, on the running loop of the calling thread."""
        ...

    # --- maintenance, by any worker, no leader ---

    async def due(self) -> Due:
        """Say what `promote`, `expire` and `reap` would find to do, in one look that changes nothing."""
        ...

    async def reap(self, batch: int = 1000) -> tuple[Reaped, ...]:
        """Close workers whose lease has passed and take over claims of closed or absent workers.

        Vanished: `crashed`, `crashes + 1`, ready in the resumed lane, dead at `max_crashes` (the last crash counts
        only if the job ran alone). Abandoned, or of a worker closed in order: `interrupted`. Of one that surrendered
        after it was lost: `lease_lost`. Waits one lease after the server's start.
        """
        ...

    async def promote(self, batch: int = 1000) -> int:
        """Make delayed jobs whose time has come ready.

        Retries and scheduled work as new, snoozed and interrupted work resumed.
        """
        ...

    async def expire(self, batch: int = 1000) -> tuple[Expired, ...]:
        """End waiting jobs past their time as dead letters; fewer than `batch` mean that no more are left.

        Past `max_queue_time` and never started: reason `expired`; a claim that was handed back was no start. Past
        `deadline`: reason `deadline`. By job id.
        """
        ...

    # --- operators ---

    async def cancel(
        self, job_id: JobId, *, reason: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> CancelVerdict:
        """End a job for good, key freed, claim revoked, one commit. `JOB_NOT_FOUND` for an absent or foreign id.

        Children that its run waits for are cancelled in the same commit, and theirs; calls that have failed stay.

        Re-reads in a new statement while the job's token is moving.
        """
        ...

    async def retry(
        self,
        job_id: JobId,
        *,
        mode: RetryMode = RetryMode.RESUME,
        from_step: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Make a dead, cancelled or held job ready again with fresh budgets, ledger kept.

        Resumed, the run goes on from what is recorded, or with `from_step` from before that step: it and all recorded
        after it are dropped, with all it waits for but calls that failed before it. Fresh (`REQUEST_INVALID` with
        a step), the job has a new, empty run, and called children that still run are cancelled. A held job is only
        retried fresh or from a step. `JOB_STATE_CONFLICT` in another state (detail `state`), `JOB_DUPLICATE` when its
        key is taken, `JOB_NOT_FOUND`, `NOT_FOUND` for a step the run has not recorded.
        """
        ...

    async def database_time(self) -> datetime:
        """Give the store's clock."""
        ...

    def listen(
        self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake] = NEWS
    ) -> AbstractAsyncContextManager[None]:
        """Call `on_wake` on the running loop for the wake-ups in `news` while the context is open.

        Re-establishes itself; `LOST` and `LISTENING` tell when polling must carry. A driver without wake-ups says
        `LOST` once.
        """
        ...

    def heard(self, ear: Callable[[Wake], None]) -> AbstractContextManager[None]:
        """Call `ear` on the running loop for wake-ups about jobs while the context is open; they are only hints.

        Over the connection that listens for those who wait. It is not made anew for an ear alone when it breaks.
        """
        ...
