"""The root of every answer, and the job: what it is, where it stands, why it failed.

Times are aware, in UTC; durations end in `_ms`. What may be null or left out has a default, so that an older service
can be read too.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from ...domain.state import TERMINAL, State


class Shown(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class JobError(Shown):
    """Why an attempt failed. `code` is one of Outlast's, when the error has one."""

    type: str
    message: str
    code: str | None = None
    retryable: bool = False
    traceback: str | None = None


class Claim(Shown):
    """The worker that runs the job now, and until when it may."""

    worker_id: str
    claimed_at: datetime
    expires_at: datetime | None = None
    heartbeat_age_ms: int | None = None


class WaitingOn(Shown):
    """What a waiting run waits for: the first of its waits; `others` is how many more there are."""

    kind: str
    name: str | None = None
    until: datetime | None = None
    since: datetime | None = None
    event: str | None = None
    key: str | None = None
    child_id: UUID | None = None
    others: int = 0


class Progress(Shown):
    """How far a run says it has come, from 0 to 1."""

    value: float
    message: str | None = None
    at: datetime


class Trace(Shown):
    """The trace a job was enqueued in."""

    trace_id: str


class JobSummary(Shown):
    """A job as it stands, without payload and result.

    `attempt` is counted failures so far, plus one while running and when done; `claim_no` the claims so far. `version`
    changes whenever the job moves. `progress` and `waiting_on` are left out in lists.
    """

    id: UUID
    run_id: UUID
    name: str
    queue: str
    state: State
    state_reason: str | None = None
    last_outcome: str | None = None
    attempt: int
    max_attempts: int
    claim_no: int
    crashes: int
    max_crashes: int
    interrupts: int
    priority: int
    tenant: str
    run_at: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    wait_ms: int | None = None
    duration_ms: int | None = None
    timeout_ms: int | None = None
    late: bool = False
    claim: Claim | None = None
    error: JobError | None = None
    progress: Progress | None = None
    waiting_on: WaitingOn | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] | None = None
    idempotency_key: str | None = None
    key_expires_at: datetime | None = None
    parent_id: UUID | None = None
    enqueued_by: str | None = None
    trace: Trace | None = None
    version: str

    @property
    def has_ended(self) -> bool:
        """Say whether the job is done, dead or cancelled."""
        return self.state in TERMINAL


class Job(JobSummary):
    """A job as it stands. Payload and result are None for keys without the scope `payload:read`."""

    payload: Any = None
    result: Any = None


class EnqueuedJob(Shown):
    """The answer to an enqueue. `deduped`: the job was there before, with the same idempotency key.

    `job` is it as it stands; None where it was deleted while its key is still taken, and in the answers to many.
    """

    id: UUID
    run_id: UUID
    name: str
    deduped: bool
    key_expires_at: datetime | None = None
    job: Job | None = None


class CancelledJob(Job):
    """A job after a cancel.

    `verdict` is what the cancel found: `cancelled_before_start`, `cancelled_while_waiting`, `signalled` or
    `already_finished`.
    """

    verdict: str


class RunNowJob(Job):
    """A job after a run-now, and what that found."""

    verdict: str


class Result(Shown):
    """What a job returned; None as long as it has not."""

    id: UUID
    state: State
    result: Any = None
