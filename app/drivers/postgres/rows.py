"""Rows of the hot verbs as domain values.

asyncpg's UUIDs are a class of its own, which encoders that ask for the exact type refuse; `plain` makes them plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ...domain.job import ClaimedJob, ClaimToken, Counters, WorkerId
from ...domain.snapshot import WorkerView
from .database import Row

# By its constructor a named tuple of many fields costs several times as much.
_MAKE = tuple.__new__

# What statements give of a job `j` behind the nine columns of its token, null where it has gone. `claimed_job` reads it
# by place; whatever a statement adds is `BEHIND` it.
ENVELOPE = """j.tenant, j.payload, j.max_attempts, j.max_crashes, j.created_at, j.run_id, j.run_at,
  j.timeout_ms, j.deadline_at - outlast.clock(), j.key, j.parent_id, j.enqueued_by, j.traceparent, j.tags, j.meta,
  j.callback is not null"""
BEHIND = 25


def plain(value: UUID) -> UUID:
    """Give a UUID of the standard library's class."""
    return UUID(int=value.int)


def claimed_job(row: Sequence[Any], *, name_of: Mapping[int, str], worker_id: WorkerId, at: datetime) -> ClaimedJob:
    """Give a claimed job from its token and its envelope: a row of `claim.TAKEN` or of an admission, read by place.

    Its ids stay asyncpg's, which are made, shown and sent at a fraction of what plain ones cost.
    """
    job_id, queue, rank, seq, name_id, attempt, claim_no, crashes, interrupts = row[:9]
    tenant, payload, max_attempts, max_crashes, created_at, run_id, run_at, timeout_ms = row[9:17]
    deadline_in, key, parent_id, enqueued_by, traceparent, tags, meta, calls_back = row[17:BEHIND]
    return _MAKE(
        ClaimedJob,
        (
            _MAKE(ClaimToken, (job_id, claim_no, worker_id, seq)),
            job_id if run_id is None else run_id,
            name_of[name_id],
            queue,
            rank >> 1,
            tenant,
            payload,
            _MAKE(Counters, (attempt, claim_no, crashes, interrupts)),
            max_attempts,
            max_crashes,
            created_at,
            at,
            run_at,
            None if timeout_ms is None else timedelta(milliseconds=timeout_ms),
            deadline_in,
            key,
            parent_id,
            enqueued_by,
            traceparent,
            () if tags is None else tuple(tags),
            meta,
            False,
            False,
            calls_back,
        ),
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
        drain_reason=row["drain_reason"],
        drain_deadline_at=row["drain_deadline_at"],
        drain_asked_at=row["drain_asked_at"],
        drain_asked_by=row["drain_asked_by"],
        names=None if row["names"] is None else tuple(row["names"]),
    )
