"""Stand-ins for what surrounds a job body: a signal, a store that only remembers, a claimed job."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast, overload
from uuid import UUID

from app.domain.errors import Aborted
from app.domain.job import ClaimedJob, ClaimToken, Counters, Enqueued, JobId, NewJob, RunId, WorkerId
from app.domain.verdict import Reason
from app.drivers.protocol import JobDriver
from app.jobs.context import JobContext, context_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JOB_ID = JobId(UUID("01900000-0000-7000-8000-000000000001"))


class FakeSignal:
    """A signal that is told to stop after it was looked at `looks` times; never without."""

    def __init__(self, *, looks: int | None = None) -> None:
        self.left = looks
        self.looked = 0

    @property
    def aborted(self) -> bool:
        return self.reason is not None

    @property
    def reason(self) -> Reason | None:
        return Reason.CANCEL if self.left is not None and self.looked >= self.left else None

    def raise_if_aborted(self) -> None:
        self.looked += 1
        if self.aborted:
            raise Aborted("told to stop", fix="none")

    @overload
    def wait(self) -> Coroutine[Any, Any, Reason]: ...

    @overload
    def wait(self, timeout: timedelta) -> bool: ...

    def wait(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, Reason] | bool:
        raise NotImplementedError


class RememberingStore:
    """Takes every job and says it is new."""

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []
        self.batches = 0

    @property
    def driver(self) -> JobDriver:
        return cast("JobDriver", self)

    async def enqueue(self, job: NewJob) -> Enqueued:
        self.jobs.append(job)
        return Enqueued(id=job.id, run_id=RunId(job.id), deduped=False)

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        self.batches += 1
        return tuple([await self.enqueue(job) for job in jobs])


def claimed(
    name: str = "a.job", payload: str = "{}", *, attempt: int = 1, claim_no: int = 1, meta: str | None = None
) -> ClaimedJob:
    return ClaimedJob(
        token=ClaimToken(job_id=JOB_ID, claim_no=claim_no, worker_id=WorkerId(7), fence=99),
        run_id=RunId(JOB_ID),
        name=name,
        queue="default",
        priority=5,
        tenant="acme",
        payload=payload,
        counters=Counters(attempt=attempt, claim_no=claim_no, crashes=1, interrupts=2),
        max_attempts=25,
        max_crashes=3,
        created_at=NOW,
        claimed_at=NOW,
        tags=("a", "b"),
        meta=meta,
    )


def context(*, attempt: int = 1, claim_no: int = 1, signal: FakeSignal | None = None) -> JobContext:
    return context_of(claimed(attempt=attempt, claim_no=claim_no), signal=signal or FakeSignal())
