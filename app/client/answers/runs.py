"""What a job's runs have done: attempts, steps, waits, spans, lines, and why it is not running."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ...domain.state import State
from .shown import Job, JobError, Shown


class Attempt(Shown):
    """One ended attempt; `number` is its claim's. `counted`: whether it took one of `max_attempts`."""

    number: int
    outcome: str
    cause: str
    counted: bool
    worker_id: str | None = None
    host: str | None = None
    code_version: str | None = None
    started_at: datetime | None = None
    ended_at: datetime
    duration_ms: int | None = None
    step: str | None = None
    error: JobError | None = None


class Step(Shown):
    """A recorded step; `seq` grows with every record. Its value is None without the scope `payload:read`."""

    seq: int
    name: str
    kind: str
    branch: str
    number: int
    claim_no: int
    code_version: str
    started_at: datetime
    ended_at: datetime
    duration_ms: int
    timed_out: bool
    child_id: UUID | None = None
    value: Any = None


class Wait(Shown):
    """What a run waits for, or a call whose child failed."""

    name: str
    kind: str
    branch: str
    number: int
    code_version: str
    since: datetime
    until: datetime | None = None
    event: str | None = None
    key: str | None = None
    child_id: UUID | None = None
    child_state: State | None = None
    has_failed: bool = False
    error: JobError | None = None


class Waits(Shown):
    """Everything a run waits for, and the jobs that it called or enqueued; the first 100."""

    waits: tuple[Wait, ...] = ()
    children: tuple[UUID, ...] = ()


class AttemptList(Shown):
    """The attempts of a job, as they come with it."""

    items: tuple[Attempt, ...] = ()


class StepList(Shown):
    """The first steps of a job's run, as they come with it; `steps` of the client gives all."""

    items: tuple[Step, ...] = ()
    waits: tuple[Wait, ...] = ()
    children: tuple[UUID, ...] = ()
    next_cursor: str | None = None


class JobInFull(Job):
    """A job with what was to be included of its life."""

    attempts: AttemptList | None = None
    steps: StepList | None = None


class Span(Shown):
    """One bar of a job's life; without `ended_at` while it lasts."""

    kind: str
    name: str
    started_at: datetime
    ended_at: datetime | None = None
    duration_ms: int | None = None
    claim_no: int | None = None
    replayed: bool = False
    inferred: bool = False
    outcome: str | None = None
    cause: str | None = None
    counted: bool | None = None
    worker_id: str | None = None
    host: str | None = None
    code_version: str | None = None
    reached: str | None = None
    error: JobError | None = None
    step_kind: str | None = None
    branch: str | None = None
    until: datetime | None = None
    event: str | None = None
    key: str | None = None
    child_id: UUID | None = None
    has_failed: bool = False


class Timeline(Shown):
    """A job's life as spans, by their beginning; `is_cut`: there are more replays than are listed."""

    id: UUID
    state: State
    spans: tuple[Span, ...]
    is_cut: bool = False


class Line(Shown):
    """A line that a run kept."""

    seq: int
    at: datetime
    claim_no: int
    message: str


class Ended(Shown):
    """The end of a stream; `state` is None for a job that was deleted."""

    id: UUID
    state: State | None = None


class Reason(Shown):
    """One reason why a job is not running, with its facts by name, and what would change it."""

    code: str
    kind: str
    blocks: bool
    text: str
    facts: dict[str, Any]
    repair: str | None = None


class Explained(Shown):
    """Why a job is not running, the strongest reason first. All of it held at the instant `at`."""

    id: UUID
    name: str
    queue: str
    state: State
    at: datetime
    runnable: bool
    served: bool
    reasons: tuple[Reason, ...]
