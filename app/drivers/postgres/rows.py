"""Rows of the hot verbs as domain values.

asyncpg's UUIDs are a class of its own, which encoders that ask for the exact type refuse; they are made plain here.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, SafeUUID

from ...domain.job import ClaimedJob, ClaimToken, Counters, JobId, RunId, WorkerId
from ...domain.snapshot import WorkerView
from .database import Row


def plain(value: UUID) -> UUID:
    """Give a UUID of the standard library's class."""
    # As `UUID(int=…)` does, without what it checks: the value is one already, and this runs for every claimed job.
    made = object.__new__(UUID)
    object.__setattr__(made, "int", value.int)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made


def claimed_job(row: Row, *, name: str, worker_id: WorkerId) -> ClaimedJob:
    """Give a claimed job from its token and its envelope."""
    job_id = JobId(plain(row["job_id"]))
    timeout_ms, parent_id = row["timeout_ms"], row["parent_id"]
    return ClaimedJob(
        token=ClaimToken(job_id=job_id, claim_no=row["claim_no"], worker_id=worker_id, fence=row["seq"]),
        run_id=RunId(job_id if row["run_id"] is None else plain(row["run_id"])),
        name=name,
        queue=row["queue"],
        priority=row["priority"],
        tenant=row["tenant"],
        payload=row["payload"],
        counters=Counters(
            attempt=row["attempt"], claim_no=row["claim_no"], crashes=row["crashes"], interrupts=row["interrupts"]
        ),
        max_attempts=row["max_attempts"],
        max_crashes=row["max_crashes"],
        created_at=row["created_at"],
        claimed_at=row["claimed_at"],
        run_at=row["run_at"],
        timeout=None if timeout_ms is None else timedelta(milliseconds=timeout_ms),
        deadline_in=row["deadline_in"],
        key=row["key"],
        parent_id=None if parent_id is None else JobId(plain(parent_id)),
        enqueued_by=row["enqueued_by"],
        traceparent=row["traceparent"],
        tags=() if row["tags"] is None else tuple(row["tags"]),
        meta=row["meta"],
    )


def worker_view(row: Row) -> WorkerView:
    """Give a worker as the store knows it."""
    return WorkerView(
        id=WorkerId(row["id"]),
        host=row["host"],
        pid=row["pid"],
        code_version=row["code_version"],
        queues=tuple(row["queues"]),
        concurrency=row["concurrency"],
        started_at=row["started_at"],
        lease_until=row["lease_until"],
        heartbeat_age_ms=row["heartbeat_age_ms"],
        lost_at=row["lost_at"],
        closed_at=row["closed_at"],
        drain_phase=row["drain_phase"],
        wakeup=row["wakeup"],
        running=row["running"],
    )
