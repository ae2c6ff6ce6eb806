"""Charts of the service: columns of one length, and totals."""

from __future__ import annotations

from datetime import datetime

from .shown import Shown


class AttemptStats(Shown):
    """What attempts came to. Percentiles are as exact as a histogram's buckets; None where nothing was measured."""

    ok: int = 0
    failed: int = 0
    dead: int = 0
    interrupted: int = 0
    crashed: int = 0
    lease_lost: int = 0
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    duration_p50_ms: float | None = None
    duration_p95_ms: float | None = None
    failure_ratio: float | None = None


class JobTypeStats(AttemptStats):
    """The same of one job type."""

    name: str


class StatsSeries(Shown):
    """Columns, oldest first: `at` is where a bucket begins."""

    at: tuple[datetime, ...] = ()
    ok: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    interrupted: tuple[int, ...] = ()
    crashed: tuple[int, ...] = ()
    lease_lost: tuple[int, ...] = ()
    wait_p50_ms: tuple[float | None, ...] = ()
    wait_p95_ms: tuple[float | None, ...] = ()
    duration_p50_ms: tuple[float | None, ...] = ()
    duration_p95_ms: tuple[float | None, ...] = ()


class ServiceStats(Shown):
    """A chart; its last bucket is still filling. `job_types` are those with most attempts."""

    began_at: datetime
    ends_at: datetime
    bucket_ms: int
    series: StatsSeries
    total: AttemptStats
    job_types: tuple[JobTypeStats, ...] = ()
