"""What runs jobs and where they wait: job types, queues, workers, drains, deploys, the outbox, the service itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ConfigDict, Field

from ...domain.state import State
from .shown import Shown


class JobType(Shown):
    """A job type as its workers publish it; fields that are not named here are in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    name: str
    code_version: str
    published_at: datetime | None = None
    doc: str = ""
    payload_schema: Any = None
    result_schema: Any = None
    policy: dict[str, Any] | None = None


class Queue(Shown):
    """A queue; None for `concurrency` and `max_depth` means any number.

    `is_fair`: its tenants take turns, those that `weights` does not name with a weight of 1.
    """

    name: str
    depth: dict[State, int]
    oldest_ready_ms: int | None = None
    is_paused: bool
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    paused_until: datetime | None = None
    concurrency: int | None = None
    max_depth: int | None = None
    is_fair: bool = False
    weights: dict[str, int] = Field(default_factory=dict)
    version: str


class Worker(Shown):
    """A worker process; `drain_phase` is None while it stays."""

    id: str
    host: str
    pid: int
    code_version: str
    queues: tuple[str, ...]
    concurrency: int
    running: int
    started_at: datetime
    lease_expires_at: datetime
    heartbeat_age_ms: int
    drain_phase: str | None = None
    drain_reason: str | None = None
    drain_deadline_at: datetime | None = None
    drain_asked_at: datetime | None = None
    drain_asked_by: str | None = None
    wakeup: str | None = None
    lost_at: datetime | None = None
    closed_at: datetime | None = None


class HeldRun(Shown):
    """A run that has not ended; `acknowledged`: it has read that it was told to stop, or has ended."""

    job_id: UUID
    job_type: str
    step: str | None = None
    told_ms: int | None = None
    acknowledged: bool


class Drain(Shown):
    """How far one process is with leaving; `phase` is None while it stays."""

    state: str
    role: str
    phase: str | None = None
    reason: str | None = None
    signal: str | None = None
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    remaining_ms: int | None = None
    in_flight_count: int
    in_flight: tuple[HeldRun, ...]
    completed: int
    interrupted: int
    abandoned: int
    other: int
    roles: dict[str, str]


class FleetDrain(Shown):
    """The workers behind the store with their drains, newest first; `draining` of `live` are leaving."""

    scope: str
    live: int
    draining: int
    phases: dict[str, int]
    workers: tuple[Worker, ...]


class Fates(Shown):
    """What became of runs that a drain told to stop, and how soon those that were cut were claimed again."""

    completed: int
    interrupted: int
    abandoned: int
    other: int
    never_acknowledged: int
    claimed_again: int
    claimed_again_ms_median: int | None = None
    claimed_again_ms_max: int | None = None


class JobTypeFates(Fates):
    """The same of one job type."""

    job_type: str


class CutRun(Shown):
    """A run that was cut; `fate` is `interrupted` or `abandoned`."""

    job_id: UUID
    job_type: str
    fate: str
    acknowledged: bool
    claimed_again_ms: int | None = None


class Deploy(Fates):
    """A drained worker's report."""

    worker_id: str
    host: str
    code_version: str
    reason: str
    started_at: datetime
    ended_at: datetime
    job_types: tuple[JobTypeFates, ...]
    cut: tuple[CutRun, ...]


class Count(Shown):
    """A number that is not counted to its end: `capped` says whether there are at least so many."""

    value: int
    capped: bool


class Quarantined(Shown):
    """A staged row that the store refuses for ever; it waits for a replay."""

    id: UUID
    name: str
    queue: str
    tenant: str
    staged_at: datetime
    quarantined_at: datetime
    code: str | None = None
    message: str


class Outbox(Shown):
    """What callers staged in their own transactions and no relay has published yet."""

    staged: Count
    claimed: Count
    quarantined: Count
    deferred: Count
    lag_ms: int
    oldest_at: datetime | None = None
    items: tuple[Quarantined, ...]


class Finding(Shown):
    """What one check of the doctor found: `level` is `ok`, `warn` or `fail`."""

    code: str
    title: str
    level: str
    text: str
    facts: dict[str, Any]
    fix: str | None = None
    commands: tuple[str, ...] = ()


class Checkup(Shown):
    """What the doctor found; `status` is the worst of all."""

    status: str
    at: datetime
    checks: tuple[Finding, ...]


class Version(Shown):
    """What runs there."""

    version: str
    code_version: str
