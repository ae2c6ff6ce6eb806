"""What operators did and asked for: bulk operations, dead letters, schedules, events, the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ...domain.state import State
from .shown import Shown


class ErrorKind(Shown):
    """One kind of dead letters: why they stopped, and the last error's type and code."""

    reason: str
    type: str | None = None
    code: str | None = None


class BulkFilter(Shown):
    """A filter as it was applied."""

    state: tuple[State, ...] = ()
    name: str | None = None
    queue: str | None = None
    tenant: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    error: ErrorKind | None = None


class BulkSelected(Shown):
    """Which jobs an operation is over: so many ids, or a filter."""

    ids: int | None = None
    filter: BulkFilter | None = None


class BulkCount(Shown):
    """How many jobs an action would be done to now; `capped`: there are more than one operation takes."""

    action: str
    selector: BulkSelected
    matched: int
    capped: bool
    notice: str | None = None


class BulkError(Shown):
    """A job that the action was not done to."""

    job_id: UUID
    code: str
    message: str


class BulkOperation(Shown):
    """A bulk operation as it stands: of `matched` jobs, `left` are still to come."""

    id: UUID
    action: str
    state: str
    selector: BulkSelected
    priority: int | None = None
    run_at: datetime | None = None
    reason: str | None = None
    created_by: str
    created_at: datetime
    ended_at: datetime | None = None
    ended_by: str | None = None
    matched: int
    done: int
    changed: int
    failed: int
    left: int
    errors_sample: tuple[BulkError, ...] = ()
    notice: str | None = None


class BulkItem(Shown):
    """What became of one job; `verdict` is None while its turn is still to come."""

    job_id: UUID
    verdict: str | None = None
    code: str | None = None
    detail: str | None = None
    message: str | None = None
    decided_at: datetime | None = None


class DeadGroup(Shown):
    """Dead letters of one job type, reason and error; `per_hour`, oldest first, for the last 24 hours.

    `message` is what the newest of it failed with, with holes for what differs from job to job.
    """

    name: str
    reason: str
    error_type: str | None = None
    error_code: str | None = None
    count: int
    first_at: datetime
    last_at: datetime
    per_hour: tuple[int, ...] = ()
    message: str | None = None


class DeadPurge(Shown):
    """What became of old dead letters; not `is_complete`: purge again after `next_after`."""

    dry_run: bool
    count: int
    is_complete: bool
    next_after: UUID | None = None


class Fire(Shown):
    """A time at which a schedule is due, as the zone's clocks show it in `local`."""

    at: datetime
    local: str
    dst: str | None = None


class Decided(Shown):
    """What became of an occurrence, why, and the job it became."""

    at: datetime
    outcome: str
    why: str | None = None
    job_id: UUID | None = None


class Occurrence(Decided):
    """A decided occurrence as it is kept."""

    decided_at: datetime
    fired_by: str | None = None


class Schedule(Shown):
    """A schedule. Payload and options are None for keys without the scope `payload:read`."""

    name: str
    job: str | None = None
    cron: str
    tz: str
    description: str | None = None
    catch_up: str | None = None
    max_catch_up: int | None = None
    overlap: str | None = None
    code_version: str
    published_at: datetime
    is_declared: bool
    watermark: datetime
    is_paused: bool
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    next_fires: tuple[Fire, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    options: dict[str, Any] | None = None
    payload: Any = None


class SchedulePreview(Shown):
    """What a cron expression means."""

    cron: str
    tz: str
    description: str
    after: datetime
    fires: tuple[Fire, ...]


class EmittedEvent(Shown):
    """An event, stored; it ended `matched` waits."""

    id: UUID
    matched: int


class Event(Shown):
    """A stored event. Its payload is None without the scope `payload:read`."""

    id: UUID
    name: str
    key: str
    tenant: str
    emitted_at: datetime
    emitted_by: str | None = None
    matched: int
    payload: Any = None


class AuditTarget(Shown):
    """What was acted on."""

    kind: str
    id: str | None = None


class AuditRow(Shown):
    """One action: who did what to what, and why."""

    id: UUID
    at: datetime
    actor: str
    action: str
    target: AuditTarget
    tenant: str | None = None
    reason: str | None = None
    outcome: str
    details: dict[str, Any]
