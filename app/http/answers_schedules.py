"""What callers are answered about schedules, for the OpenAPI document and the tests; a part of `answers`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from ..domain.schedule import CatchUp, OccurrenceOutcome, Overlap
from .answers import Answer


class Fire(Answer):
    """A time at which a schedule is due."""

    at: datetime
    local: str = Field(description="The same instant as the zone's clocks show it, with its offset.")
    dst: Literal["moved", "first", "second"] | None = Field(
        description="`moved` out of times that the clock skips; `first` or `second` of a time that comes twice."
    )


class Decided(Answer):
    """What became of an occurrence."""

    at: datetime
    outcome: OccurrenceOutcome
    why: str | None = Field(description="Why it was skipped: `catch_up`, `overlap`, `paused`, `deduped`, or an error.")
    job_id: UUID | None = Field(description="The job it became, or that stood in its way.")


class Occurrence(Decided):
    """A decided occurrence as it is kept."""

    decided_at: datetime
    fired_by: str | None = Field(description="Who fired it by hand.")


class ScheduleOptions(Answer):
    """The options of every job of a schedule; null where the job type decides."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    idempotency_key: str | None
    on_conflict: str | None
    tags: list[str]
    meta: str | None
    tenant: str | None
    enqueued_by: str | None
    delay_ms: int | None
    timeout_ms: int | None
    dedupe_for_ms: int | None


class Schedule(Answer):
    """A schedule. Payload and options are left out for keys without the scope `payload:read`."""

    name: str
    job: str | None
    cron: str
    tz: str
    description: str | None = Field(description="The expression in plain English.")
    catch_up: CatchUp | None
    max_catch_up: int | None
    overlap: Overlap | None
    code_version: str = Field(description="Of the declaration that stands: the newest that a living scheduler shows.")
    published_at: datetime
    is_declared: bool = Field(description="Whether a living scheduler declares it; without one nothing fires.")
    watermark: datetime = Field(description="Every occurrence up to here is decided.")
    is_paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    next_fires: list[Fire] = Field(description="Its next times; none while it is paused or not declared.")
    occurrences: list[Occurrence] = Field(description="The last ones, newest first.")
    options: ScheduleOptions | None = None
    payload: Any = None


class ScheduleList(Answer):
    """Every schedule by name, each with its next time and its last occurrence."""

    items: list[Schedule]


class SchedulePreview(Answer):
    """What an expression means."""

    cron: str
    tz: str
    description: str
    after: datetime
    fires: list[Fire]
