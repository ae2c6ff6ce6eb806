"""What callers are answered, field by field, for the OpenAPI document and the tests.

Answers are rendered from the store's views by `control.represent`, never through these models: a payload must not be
decoded on its way out. A test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from ..domain.outcome import CancelVerdict, OutcomeKind
from ..domain.state import State
from ..domain.step import StepKind


class Answer(BaseModel):
    """An answer: exactly these fields."""

    model_config = ConfigDict(extra="forbid")


class JobError(Answer):
    """Why an attempt failed."""

    type: str
    message: str
    code: str | None = Field(description="One of Outlast's codes, when the error has one.")
    retryable: bool


class AttemptError(JobError):
    """Why an attempt failed, with its traceback."""

    traceback: str | None


class Claim(Answer):
    """The worker that runs the job now, and until when it may."""

    worker_id: str
    claimed_at: datetime
    expires_at: datetime | None
    heartbeat_age_ms: int | None


class WaitingOn(Answer):
    """What a waiting run waits for: the first of its waits."""

    kind: StepKind
    name: str | None = Field(description="The step's; null for a job that asked to be run again later.")
    until: datetime | None
    since: datetime | None
    event: str | None
    key: str | None
    child_id: UUID | None
    others: int = Field(description="How many other waits there are; `/steps` lists them.")


class Progress(Answer):
    """How far a run says it has come."""

    value: float = Field(description="From 0 to 1.")
    message: str | None
    at: datetime


class Trace(Answer):
    """The trace the job was enqueued in."""

    trace_id: str


class Links(Answer):
    """Where the rest is."""

    self: str
    result: str
    attempts: str
    steps: str
    timeline: str
    logs: str
    events: str


class JobSummary(Answer):
    """A job as it stands, without payload and result."""

    id: UUID
    run_id: UUID
    name: str
    queue: str
    state: State
    state_reason: str | None = Field(description="Why it is dead, held, waits or was cancelled.")
    last_outcome: OutcomeKind | None
    attempt: int = Field(description="Counted failures so far, plus one while running and when done.")
    max_attempts: int
    claim_no: int = Field(description="Claims so far; never reset.")
    crashes: int
    max_crashes: int
    interrupts: int
    priority: int
    tenant: str
    run_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    wait_ms: int | None = Field(description="From due to the first start; null once it was claimed again.")
    duration_ms: int | None
    timeout_ms: int | None
    late: bool = Field(description="Whether the body returned after it was told to stop.")
    claim: Claim | None
    error: JobError | None = Field(description="The last attempt's; cleared by done.")
    progress: Progress | None = Field(description="Null in lists.")
    waiting_on: WaitingOn | None = Field(description="Of a suspended job; null in lists.")
    tags: list[str]
    meta: dict[str, Any] | None
    idempotency_key: str | None
    key_expires_at: datetime | None
    parent_id: UUID | None
    enqueued_by: str | None
    trace: Trace | None
    version: str = Field(description="Changes whenever the job moves; the ETag begins with it.")
    links: Links


class Job(JobSummary):
    """A job as it stands. Payload and result are left out for keys without the scope `payload:read`."""

    payload: Any = None
    result: Any = None


class EnqueuedJob(Job):
    """The job that now stands for the request."""

    deduped: bool = Field(description="Whether it was there before.")


class EnqueuedReceipt(Answer):
    """The answer to a repeated enqueue whose job was deleted while its key is still taken."""

    id: UUID
    run_id: UUID
    name: str
    state: None
    deduped: bool
    key_expires_at: datetime | None
    links: Links


class CancelledJob(Job):
    """The job after a cancel, and what the cancel found."""

    verdict: CancelVerdict


class Result(Answer):
    """What a job returned; null as long as it has not."""

    id: UUID
    state: State
    result: Any
    links: Links


class Attempt(Answer):
    """One ended attempt."""

    number: int
    outcome: OutcomeKind
    cause: str
    counted: bool
    worker_id: str | None
    host: str | None
    code_version: str | None
    started_at: datetime | None
    ended_at: datetime
    duration_ms: int | None
    step: str | None
    error: AttemptError | None


class AttemptList(Answer):
    """The attempts of a job in order; of very many the first 20 and the last 80."""

    items: list[Attempt]


class JobTypeDocument(BaseModel):
    """A job type as its workers publish it; new fields may appear."""

    name: str
    code_version: str
    published_at: datetime | None


class JobTypeList(Answer):
    """Every published job type by name."""

    items: list[JobTypeDocument]


class Queue(Answer):
    """A queue."""

    name: str
    depth: dict[State, int]
    oldest_ready_ms: int | None
    is_paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    paused_until: datetime | None = Field(description="When the pause ends by itself; null without a pause or an end.")
    concurrency: int | None = Field(description="How many of its jobs may run in the whole fleet; null: any number.")
    max_depth: int | None = Field(description="How many ready and delayed jobs it takes in; null: any number.")
    is_fair: bool = Field(description="Whether its tenants take turns.")
    weights: dict[str, int] = Field(
        description="How many starts a tenant gets where others get one; those that are not named get one."
        " A key of one tenant sees its own."
    )
    version: str = Field(description="Changes with its settings: what `If-Match` names.")


class QueueList(Answer):
    """Every queue that has jobs or a setting, by name."""

    items: list[Queue]


class Worker(Answer):
    """A worker process."""

    id: str
    host: str
    pid: int
    code_version: str
    queues: list[str]
    concurrency: int
    running: int
    started_at: datetime
    lease_expires_at: datetime
    heartbeat_age_ms: int
    drain_phase: str | None = Field(description="`accept`, `inflight` or `close`; null while it stays.")
    drain_reason: str | None
    drain_deadline_at: datetime | None
    drain_asked_at: datetime | None = Field(
        description="When somebody asked this worker to leave, or a signal told it to."
    )
    drain_asked_by: str | None
    wakeup: str | None
    lost_at: datetime | None
    closed_at: datetime | None


class WorkerList(Answer):
    """Live workers and those that left in the last hour, newest first."""

    items: list[Worker]


class Count(Answer):
    """A number that is not counted to its end."""

    value: int
    capped: bool = Field(description="Whether there are at least so many.")


class Quarantined(Answer):
    """A staged row that the store refuses for ever; it waits for a replay."""

    id: UUID = Field(description="Of the row, and of the job it was to become.")
    name: str
    queue: str
    tenant: str
    staged_at: datetime
    quarantined_at: datetime
    code: str | None = Field(description="Null for a row that is too old to be published safely.")
    message: str


class Outbox(Answer):
    """What callers staged in their own transactions and no relay has published yet."""

    staged: Count
    claimed: Count
    quarantined: Count
    deferred: Count = Field(description="Rows for queues that are full: they stay, and are tried again later.")
    lag_ms: int = Field(description="Age of the oldest row that is staged or claimed.")
    oldest_at: datetime | None
    items: list[Quarantined] = Field(description="The newest quarantined rows.")


class Ready(Answer):
    """Whether the process should get traffic."""

    status: Literal["ready", "not_ready"]
    reason: str | None = None


class Version(Answer):
    """What runs here."""

    version: str
    code_version: str


class ProblemType(Answer):
    """What a code means."""

    code: str
    title: str
    status: int
    description: str = Field(description="What causes it.")
    repair: str = Field(description="What to do about it in general; a problem's own `fix` knows the case.")
    retryable: bool


class FieldProblem(BaseModel):
    """One field that does not fit."""

    place: Literal["body", "query", "path", "header"] = Field(alias="in")
    pointer: str = Field(description="A JSON Pointer into that place.")
    detail: str


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="Stable; what programs look at.")
    fix: str = Field(description="A repair that works.")
    retryable: bool
    request_id: str
    trace_id: str | None
    errors: list[FieldProblem] | None = None
    existing_id: UUID | None = None
    expected: int | None = Field(default=None, description="Of `COUNT_CHANGED`: the number that was expected.")
    count: int | None = Field(default=None, description="Of `COUNT_CHANGED`: the number there is.")
    state: State | None = None
    error: JobError | None = None
