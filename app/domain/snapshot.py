"""What a store shows of itself: read-only views handed to HTTP, CLI and tests.

Values are as stored: payloads and results are JSON text, errors are bounded, times are the database's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from .drain import LAST_PHASE
from .error_shape import shape_of
from .job import ClaimToken, Counters, JobId, RunId, WorkerId
from .outcome import ErrorInfo, OutcomeKind, SettleAnswer
from .queue import Pause, version_of_queue
from .state import DeadReason, State
from .step import ProgressView, WaitView

# So far back dead letters are counted by the hour.
HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """Who holds a running job, and until when the worker's lease lasts."""

    worker_id: WorkerId
    claimed_at: datetime
    lease_until: datetime | None
    heartbeat_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as it stands in one snapshot.

    `payload` is None in lists; `result` is set on done jobs only (JSON text). `state_reason` is the dead reason, the
    canceller's words, why a job waits (`scheduled`, `retry`, `snooze`, `interrupted`) or is held, or what a suspended
    run waits for (the kind of its first wait). `error` is the last attempt's, cleared by done. `progress` and
    `waiting_on` (of suspended jobs) are given for one job, not in lists.
    """

    id: JobId
    run_id: RunId
    name: str
    queue: str
    state: State
    state_reason: str | None
    priority: int
    tenant: str
    counters: Counters
    max_attempts: int
    max_crashes: int
    created_at: datetime
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_outcome: OutcomeKind | None = None
    error: ErrorInfo | None = None
    payload: str | None = None
    result: str | None = None
    late: bool = False
    claim: ClaimView | None = None
    key: str | None = None
    key_expires_at: datetime | None = None
    parent_id: JobId | None = None
    enqueued_by: str | None = None
    traceparent: str | None = None
    tags: tuple[str, ...] = ()
    meta: str | None = None
    timeout_ms: int | None = None
    progress: ProgressView | None = None
    waiting_on: tuple[WaitView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One ended attempt. `number` is the claim number; `counted` says whether it spent the attempt budget."""

    number: int
    outcome: OutcomeKind
    cause: str
    counted: bool
    worker_id: WorkerId | None
    host: str | None
    code_version: str | None
    started_at: datetime | None
    ended_at: datetime
    step: str | None = None
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of a list, newest first. `next_after` continues it with older jobs, None at the end.

    `newer_than` is the id whose newer ones come before the page, None where it is known to be the first.
    """

    items: tuple[JobView, ...]
    next_after: JobId | None
    newer_than: JobId | None = None


class Place(NamedTuple):
    """Where a page in the order of a time begins or ends: at a job, or just beside it."""

    at: datetime
    id: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPage:
    """One page in the order of a time. Places continue it either way, None where nothing is known to be."""

    items: tuple[JobView, ...]
    next_place: Place | None
    prev_place: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCount:
    """How many jobs fit a filter; `is_capped`: there may be more, and nobody looked further."""

    value: int
    is_capped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead letters of one job type, reason and error kind.

    `per_hour` counts those that died in each of the last `HOURS` hours, the one until now last. `error_message` is the
    beginning of what the last attempt of the newest job failed with; None where it had no error.
    """

    name: str
    reason: str
    error_type: str | None
    error_code: str | None
    count: int
    first_at: datetime
    last_at: datetime
    per_hour: tuple[int, ...] = (0,) * HOURS
    error_message: str | None = None

    @property
    def message(self) -> str | None:
        """Give the message of the newest job with holes for what differs from job to job."""
        return None if self.error_message is None else shape_of(self.error_message)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue: what is in it by state, how old its oldest ready job is, whether it is paused, and its limits.

    `concurrency` bounds how many of its jobs run in the fleet, `max_depth` how many ready and delayed ones it takes in.
    `is_fair`: its tenants take turns, those in `weights` with other weights than 1.
    """

    name: str
    depth: dict[State, int]
    oldest_ready_seconds: float | None
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    paused_until: datetime | None = None
    concurrency: int | None = None
    max_depth: int | None = None
    is_fair: bool = False
    weights: Mapping[str, int] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Give an opaque word that changes whenever a setting of the queue does, and with nothing else."""
        by, at = self.paused_by or "", self.paused_at
        pause = None if at is None else Pause(at=at, by=by, reason=self.pause_reason, until=self.paused_until)
        return version_of_queue(pause, self.concurrency, self.max_depth, is_fair=self.is_fair)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestSnapshot:
    """The oldest snapshot that anybody keeps of the store: what has died since cannot be vacuumed away.

    `xids`: how many transaction ids ago it was taken. `seconds`: for how long it has been kept, as far as the server
    tells; both 0 while nobody keeps one.
    """

    seconds: float
    xids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts over the whole store; each job is in exactly one bucket. Of terminal jobs a store may count the newest.

    `slots_held` are the slots of limits that are held, by whatever body still runs. `oldest_snapshot` is None in a
    store without such.
    """

    by_state: dict[State, int]
    queues: tuple[QueueView, ...]
    slots_held: int = 0
    oldest_snapshot: OldestSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    """A process that asks to execute jobs. `boot_id` makes repeating a registration whose reply was lost safe.

    `names` are the job types it knows; None when it does not say.
    """

    host: str
    pid: int
    code_version: str
    queues: tuple[str, ...]
    concurrency: int
    lease_ms: int
    boot_id: UUID
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker as the store knows it. `wakeup` is how it learns of work: `listen` or `polling`.

    Its drain is as it last showed it; `drain_asked_by` names who asked for one through the store. `names` are the job
    types it knows, None when it did not say.
    """

    id: WorkerId
    host: str
    pid: int
    code_version: str
    queues: tuple[str, ...]
    concurrency: int
    started_at: datetime
    lease_until: datetime
    heartbeat_age_ms: int
    lost_at: datetime | None
    closed_at: datetime | None
    drain_phase: str | None
    wakeup: str | None
    running: int
    drain_reason: str | None = None
    drain_deadline_at: datetime | None = None
    drain_asked_at: datetime | None = None
    drain_asked_by: str | None = None
    names: tuple[str, ...] | None = None

    @property
    def has_left(self) -> bool:
        """Say whether it left in order; one that abandoned work at the end of its drain lets its lease run out."""
        if self.lost_at is None:
            return self.closed_at is not None
        return self.drain_phase == LAST_PHASE

    @property
    def is_lost(self) -> bool:
        """Say whether its lease passed without a word: it died, hangs, or could not reach the store."""
        return self.lost_at is not None and not self.has_left


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTypeDoc:
    """A published job type: the JSON projection that `describe` makes, as text, under the code version it came from."""

    name: str
    code_version: str
    document: str
    published_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A claim that is no longer its worker's, and by what it was superseded."""

    token: ClaimToken
    by: SettleAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The answer to a heartbeat: whether the lease is held, which of the named claims are gone, who wants a drain."""

    is_held: bool
    revoked: tuple[Revocation, ...] = ()
    drain_asked_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """A claim taken over from a worker that is gone, with the outcome and cause recorded in its place.

    `attempt` is the job's count while it ran, `lasted` the time from the claim until it was taken over.
    """

    job_id: JobId
    name: str
    queue: str
    claim_no: int
    worker_id: WorkerId
    outcome: OutcomeKind
    cause: str
    attempt: int
    lasted: timedelta
    is_dead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What maintenance would find to do.

    `promote_in` and `wake_in` are the times to the next delayed job and to the next end of a wait, None without one;
    a `wake` has something to do when that is zero or less.
    `must_release`: held or handed-back jobs have somewhere else to go now. `resume_in` is the time until the next pause
    of a queue is over, `has_resumed` says that one has just ended by itself. `must_bulk`: bulk operations run, or old
    ones are to be deleted. `must_carry`: ends of jobs are to be told to webhooks. `must_free`: workers that are gone
    hold slots, keys of limits have not been used for long, or the code version whose limits hold has gone. `is_gated`:
    limited jobs wait in the gate, or a queue is fair, whose jobs do; `admit_in` is when a key that some are parked at
    may have room. `must_line_up`: jobs of a fair queue are out of line.
    """

    promote_in: timedelta | None
    must_expire: bool
    must_reap: bool
    wake_in: timedelta | None = None
    must_release: bool = False
    resume_in: timedelta | None = None
    has_resumed: bool = False
    must_bulk: bool = False
    must_carry: bool = False
    must_free: bool = False
    is_gated: bool = False
    must_line_up: bool = False
    admit_in: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """A job that a sweep ended while it waited, and the limit it had passed: `expired` or `deadline`."""

    job_id: JobId
    name: str
    queue: str
    reason: DeadReason
