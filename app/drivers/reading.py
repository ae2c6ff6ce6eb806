"""The vocabulary of readers: what jobs, queues and job types are, each answer in one snapshot.

A part of the job store's protocol, apart because nothing here changes anything. Implemented by every driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..domain.job import JobId
from ..domain.reason import Situation
from ..domain.snapshot import AttemptView, DeadGroup, JobPage, JobTypeDoc, JobView, QueueView, Stats
from ..domain.state import State
from ..domain.vitals import Vitals


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A filter over jobs, newest id first. `before` is the id a page ended with; `limit` 1 to 200.

    Times are those of the enqueue: `created_after` is still in, `created_before` is out.
    """

    states: frozenset[State] = frozenset()
    name: str | None = None
    queue: str | None = None
    tenant: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    before: JobId | None = None
    limit: int = 50


class ReadStore(Protocol):
    """A store that is looked at."""

    async def describe(self, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        """Give one job with payload and result, in one snapshot; None when absent or another tenant's."""
        ...

    async def situation(self, job_id: JobId, *, tenant: str | None = None) -> Situation | None:
        """Give one job, without payload and result, and all that decides about its claim, in one snapshot.

        Whether it is claimable is asked of the claim's own conditions. None when absent or another tenant's.
        """
        ...

    async def attempts(self, job_id: JobId, *, tenant: str | None = None) -> tuple[AttemptView, ...]:
        """Give the ledger in order, the completing attempt last; nothing of an absent or another tenant's job."""
        ...

    async def list(self, query: ListQuery) -> JobPage:
        """Give one page of jobs, newest first, without payloads and results."""
        ...

    async def dead_letters(self, *, tenant: str | None = None) -> tuple[DeadGroup, ...]:
        """Group dead letters by job type, reason and error kind, most first."""
        ...

    async def finished_among(self, job_ids: Sequence[JobId]) -> frozenset[JobId]:
        """Say which of these jobs are terminal or gone; one statement for all waiters of a process."""
        ...

    async def until_finished(self, job_id: JobId) -> None:
        """Return as soon as a job is terminal or gone, which it may be already. Bound it with `asyncio.timeout`.

        However many wait in a process, one connection listens for all of them, and polling makes up for what it does
        not hear; while the store is away they wait on. `DRIVER_UNAVAILABLE` when the driver is closed meanwhile.
        """
        ...

    async def stats(self) -> Stats:
        """Count jobs by state and queue."""
        ...

    async def queues(self) -> tuple[QueueView, ...]:
        """Give every queue that has jobs or a setting, by name."""
        ...

    async def job_types(self) -> tuple[JobTypeDoc, ...]:
        """Give every published job type, its newest publication, by name."""
        ...

    async def vitals(self) -> Vitals:
        """Give the store's health in facts, whether or not it was opened; changes nothing.

        `DRIVER_UNAVAILABLE` when it does not answer.
        """
        ...
