"""What callers are answered about runs and events, field by field, for the OpenAPI document and the tests.

Rendered by `control`, like all answers never through these models. A test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from ..control.timeline import SpanKind
from ..domain.outcome import OutcomeKind
from ..domain.state import State
from ..domain.step import StepKind
from .answers import Answer, Attempt, JobError, JobSummary, Progress


class Step(Answer):
    """A recorded step. Its value is left out for keys without the scope `payload:read`."""

    seq: int = Field(description="Grows with every record.")
    name: str
    kind: StepKind
    branch: str = Field(description="Empty, or the path of a branch of `gather` such as `2.0`.")
    number: int = Field(description="Its place in the branch, from 0.")
    claim_no: int = Field(description="The attempt it was recorded under.")
    code_version: str
    started_at: datetime
    ended_at: datetime
    duration_ms: int
    timed_out: bool = Field(description="Whether an event did not come in time.")
    child_id: UUID | None = Field(description="The job that a call ran.")
    value: Any = None


class ChildError(Answer):
    """Why a called job failed."""

    type: str
    message: str
    code: str | None


class Wait(Answer):
    """What a run waits for, or a call whose child failed."""

    name: str
    kind: StepKind
    branch: str
    number: int
    code_version: str
    since: datetime
    until: datetime | None = Field(description="When it ends by itself.")
    event: str | None
    key: str | None
    child_id: UUID | None
    child_state: State | None = Field(description="Given once the child is dead or cancelled.")
    has_failed: bool = Field(description="Whether the child will never give a result.")
    error: ChildError | None


class StepList(Answer):
    """The steps of a run in the order of their records, and everything it waits for."""

    items: list[Step]
    waits: list[Wait]
    children: list[UUID] = Field(description="Jobs that it called or enqueued; the first 100.")
    next_cursor: str | None


class Span(Answer):
    """One bar of a job's life."""

    kind: SpanKind
    name: str
    started_at: datetime
    ended_at: datetime | None = Field(description="Null while it lasts.")
    duration_ms: int | None
    claim_no: int | None
    replayed: bool = Field(description="A step that this attempt got from the record; it has no length.")
    inferred: bool = Field(description="An attempt that suspended, read off what it recorded.")
    outcome: OutcomeKind | None
    cause: str | None
    counted: bool | None
    worker_id: str | None
    host: str | None
    code_version: str | None
    reached: str | None = Field(description="The step that an attempt had reached when it ended.")
    error: JobError | None
    step_kind: StepKind | None
    branch: str | None
    until: datetime | None
    event: str | None
    key: str | None
    child_id: UUID | None
    has_failed: bool


class Timeline(Answer):
    """A job's life as spans, by their beginning."""

    id: UUID
    state: State
    spans: list[Span]
    is_cut: bool = Field(description="Whether there are more replays than are listed.")


class Line(Answer):
    """A line that a run kept."""

    seq: int
    at: datetime
    claim_no: int
    message: str


class LineList(Answer):
    """The lines of a run, oldest first."""

    items: list[Line]
    progress: Progress | None
    next_cursor: str | None


class Ended(Answer):
    """The last event of a stream. `state` is null for a job that was deleted."""

    id: UUID
    state: State | None


class StreamedEvents(Answer):
    """What the events of a job's stream carry, by their names."""

    state: JobSummary | None = Field(default=None, description="The job as it stands.")
    attempt: Attempt | None = None
    step: Step | None = None
    progress: Progress | None = None
    log: Line | None = None
    end: Ended | None = None


class EmittedEvent(Answer):
    """An event, stored."""

    id: UUID
    matched: int = Field(description="How many waits it ended.")


class Event(Answer):
    """A stored event. Its payload is left out for keys without the scope `payload:read`."""

    id: UUID
    name: str
    key: str
    tenant: str
    emitted_at: datetime
    emitted_by: str | None
    matched: int = Field(description="How many waits it ended when it was emitted.")
    payload: Any = None


class EventList(Answer):
    """One page of events, newest first."""

    items: list[Event]
    next_cursor: str | None
