"""The answer of `GET /v1/stats`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from .answers import Answer

_ROUGH = "As exact as the histogram's buckets; null where nothing was measured."


class AttemptStats(Answer):
    """What attempts came to. Of jobs that crashed, were interrupted or lost their lease the next attempt counts."""

    ok: int
    failed: int
    dead: int
    interrupted: int
    crashed: int
    lease_lost: int
    wait_p50_ms: float | None
    wait_p95_ms: float | None = Field(description=f"From due to the first start. {_ROUGH}")
    duration_p50_ms: float | None
    duration_p95_ms: float | None = Field(description=f"Of an attempt. {_ROUGH}")
    failure_ratio: float | None = Field(description="failed and dead of ok, failed and dead; null of none.")


class JobTypeStats(AttemptStats):
    """The same of one job type."""

    name: str


class StatsSeries(Answer):
    """Columns of one length, oldest first: `at` is where a bucket begins."""

    at: list[datetime]
    ok: list[int]
    failed: list[int]
    dead: list[int]
    interrupted: list[int]
    crashed: list[int]
    lease_lost: list[int]
    wait_p50_ms: list[float | None]
    wait_p95_ms: list[float | None]
    duration_p50_ms: list[float | None]
    duration_p95_ms: list[float | None]


class ServiceStats(Answer):
    """A chart of the service. The last bucket is still filling."""

    began_at: datetime
    ends_at: datetime
    bucket_ms: int
    series: StatsSeries
    total: AttemptStats
    job_types: list[JobTypeStats] = Field(description="At most 50, those with most attempts first.")


_TOTAL: dict[str, Any] = {
    "ok": 118,
    "failed": 2,
    "dead": 0,
    "interrupted": 1,
    "crashed": 0,
    "lease_lost": 0,
    "wait_p50_ms": 3.1,
    "wait_p95_ms": 9.6,
    "duration_p50_ms": 42.0,
    "duration_p95_ms": 210.5,
    "failure_ratio": 0.0167,
}
STATS_EXAMPLE: dict[str, Any] = {
    "began_at": "2026-11-29T00:00:00Z",
    "ends_at": "2026-11-29T12:00:00Z",
    "bucket_ms": 21_600_000,
    "series": {
        "at": ["2026-11-29T00:00:00Z", "2026-11-29T06:00:00Z"],
        "ok": [0, 118],
        "failed": [0, 2],
        "dead": [0, 0],
        "interrupted": [0, 1],
        "crashed": [0, 0],
        "lease_lost": [0, 0],
        "wait_p50_ms": [None, 3.1],
        "wait_p95_ms": [None, 9.6],
        "duration_p50_ms": [None, 42.0],
        "duration_p95_ms": [None, 210.5],
    },
    "total": _TOTAL,
    "job_types": [{"name": "demo.count_lines", **_TOTAL}],
}
