"""A trace: one job and the durable history of its run, as it is written out of a store and replayed against code.

Values only; `line` gives them their text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..domain.job import ClaimedJob, ClaimToken, WorkerId
from ..domain.snapshot import JobView
from ..domain.state import State
from ..domain.step import RunHistory
from ..steps.history import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One job with its payload, and what its run has recorded."""

    job: JobView
    history: RunHistory

    @property
    def records(self) -> tuple[Record, ...]:
        """Give what the code has to ask for: steps that are over and waits that are not."""
        return (*self.history.steps, *self.history.waits)

    def claimed(self, at: datetime) -> ClaimedJob:
        """Give the job as the next worker to claim it would have it in hand; no store knows the claim."""
        job = self.job
        counters = job.counters
        if job.state in {State.RUNNING, State.DONE}:
            counters = counters.uncounted()
        counters = counters.claimed()
        return ClaimedJob(
            token=ClaimToken(job.id, counters.claim_no, WorkerId(0), 0),
            run_id=job.run_id,
            name=job.name,
            queue=job.queue,
            priority=job.priority,
            tenant=job.tenant,
            payload=job.payload or "null",
            counters=counters,
            max_attempts=job.max_attempts,
            max_crashes=job.max_crashes,
            created_at=job.created_at,
            claimed_at=at,
            run_at=job.run_at,
            key=job.key,
            parent_id=job.parent_id,
            enqueued_by=job.enqueued_by,
            traceparent=job.traceparent,
            tags=job.tags,
            meta=job.meta,
        )
