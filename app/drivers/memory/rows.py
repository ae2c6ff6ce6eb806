"""What the store keeps: an envelope per job that never moves, and one narrow token that does.

Values only. A token is in exactly one bucket because a job has exactly one; its class says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from ...domain.drain import LAST_PHASE, DrainReport, DrainShown
from ...domain.job import ClaimToken, Counters, JobId, NewJob, RunId, WorkerId
from ...domain.snapshot import NewWorker
from ...domain.state import State
from ...domain.step import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A job as it was enqueued, with its instants worked out. `start_by` is the end of `max_queue_time`.

    `events_from` is since when events are for its run. `run_id` is its run now: its own id, until a fresh retry gives
    it another.
    """

    job: NewJob
    run_id: RunId
    created_at: datetime
    events_from: datetime
    run_at: datetime | None
    start_by: datetime | None
    deadline_at: datetime | None


class Wait(StrEnum):
    """Why a job waits for a time; shown as its `state_reason`."""

    SCHEDULED = "scheduled"
    RETRY = "retry"
    SNOOZE = "snooze"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """For workers of one code version alone, until an instant: the job was handed back to the code that recorded it.

    `reason` is what it is held with afterwards; with `or_dead` it is dead then.
    """

    version: str
    until: datetime
    reason: str
    or_dead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """In a queue since an instant. Within one, the order is `(rank, seq)`; `seq` is new every time it becomes ready."""

    counters: Counters
    rank: int
    seq: int
    since: datetime
    pin: Pin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Ready when due, in the place `rank` gives it, and for whom `pin` says."""

    counters: Counters
    rank: int
    due_at: datetime
    reason: Wait
    pin: Pin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Claimed. `fence` is the sequence of the ready token: unique per claim, and in the order of becoming ready."""

    counters: Counters
    fence: int
    worker_id: WorkerId
    claimed_at: datetime
    is_alone: bool = False
    is_abandoned: bool = False

    def is_named_by(self, token: ClaimToken) -> bool:
        """Say whether this is the claim the token names: the same claim by the same worker."""
        return (token.fence, token.claim_no, token.worker_id) == (self.fence, self.counters.claim_no, self.worker_id)

    def ended(self, state: State, counters: Counters, now: datetime, *, reason: str | None = None) -> Finished:
        """Give what is left of a job that this claim's end has ended."""
        return Finished(
            counters=counters,
            state=state,
            finished_at=now,
            reason=reason,
            worker_id=self.worker_id,
            started_at=self.claimed_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dormant:
    """Suspended: its run waits. Ready in the place `rank` gives it once a wait is over; `kind` is its first wait's."""

    counters: Counters
    rank: int
    since: datetime
    kind: StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """Waiting for an operator, or with a `version` for a worker of it that comes later."""

    counters: Counters
    reason: str
    held_at: datetime
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Ended. `worker_id` and `started_at` are the last attempt's, when it ended the job."""

    counters: Counters
    state: State
    finished_at: datetime
    reason: str | None = None
    result: str | None = None
    is_late: bool = False
    worker_id: WorkerId | None = None
    started_at: datetime | None = None


Token: TypeAlias = Ready | Waiting | Running | Dormant | HeldBack | Finished


def state_of(token: Token) -> State:
    """Give the bucket a token is in."""
    match token:
        case Ready():
            return State.READY
        case Waiting():
            return State.DELAYED
        case Running():
            return State.RUNNING
        case Dormant():
            return State.SUSPENDED
        case HeldBack():
            return State.HELD
        case Finished(state=state):
            return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Who holds an idempotency key. An ended holder keeps it until `expires_at`."""

    job_id: JobId
    fingerprint: int
    expires_at: datetime | None
    is_ended: bool = False

    def is_taken(self, now: datetime) -> bool:
        """Say whether another job must not have this key."""
        return not self.is_ended or (self.expires_at is not None and self.expires_at > now)


@dataclass(slots=True, kw_only=True)
class Worker:
    """A worker's row, the one row that is updated in place."""

    id: WorkerId
    about: NewWorker
    started_at: datetime
    renewed_at: datetime
    lease_until: datetime
    lost_at: datetime | None = None
    closed_at: datetime | None = None
    wakeup: str | None = None
    drain: DrainShown | None = None
    drain_deadline_at: datetime | None = None
    drain_asked_at: datetime | None = None
    drain_asked_by: str | None = None

    @property
    def lease(self) -> timedelta:
        """Give the lease's own length."""
        return timedelta(milliseconds=self.about.lease_ms)

    @property
    def has_drained(self) -> bool:
        """Say whether its drain came to the last phase."""
        return self.drain is not None and self.drain.phase == LAST_PHASE

    @property
    def has_left(self) -> bool:
        """Say whether it left in order; one that abandoned work at the end of its drain lets its lease run out."""
        return self.has_drained or (self.closed_at is not None and self.lost_at is None)

    def is_alive(self, now: datetime) -> bool:
        """Say whether the lease lasts: neither passed, nor taken, nor closed."""
        return self.lost_at is None and self.closed_at is None and self.lease_until > now

    def serves(self, queue: str, version: str, now: datetime) -> bool:
        """Say whether it will take jobs of a queue with code of a version: it lives, and no drain has begun."""
        is_staying = self.drain is None and self.drain_asked_at is None
        return self.is_alive(now) and is_staying and queue in self.about.queues and version == self.about.code_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a worker said of its drain, and when."""

    report: DrainReport
    at: datetime


SourceId: TypeAlias = UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The job that a source became, or was led to by its key; remembered longer than the job itself."""

    job_id: JobId
    expires_at: datetime


@dataclass(slots=True, kw_only=True)
class Rest:
    """When the last round over a kind of rows began, and until when it rests."""

    round_at: datetime
    until: datetime
