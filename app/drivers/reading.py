"""The vocabulary of readers: what jobs, queues and job types are, each answer in one snapshot.

A part of the job store's protocol, apart because nothing here changes anything. Implemented by every driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from ..domain.job import JobId, WorkerId
from ..domain.reason import Situation
from ..domain.snapshot import (
    AttemptView,
    DeadGroup,
    JobCount,
    JobPage,
    JobTypeDoc,
    JobView,
    Place,
    PlacedPage,
    QueueView,
    Stats,
)
from ..domain.state import State
from ..domain.vitals import Vitals


class TimeSort(StrEnum):
    """By what times jobs can be listed, other than their enqueue; each is an index over jobs in some states alone."""

    RUN_AT = "run_at"
    FINISHED_AT = "finished_at"


# The states whose jobs an index has in the order of a time. Jobs that are done are in none: it would cost each of them.
SORTABLE = {
    TimeSort.RUN_AT: frozenset({State.DELAYED}),
    TimeSort.FINISHED_AT: frozenset({State.DEAD, State.CANCELLED}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOrder:
    """A page in the order of a time: the one behind `place`, or, with `is_back`, the one before it."""

    sort: TimeSort
    is_ascending: bool = False
    place: Place | None = None
    is_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A filter over jobs, newest id first. `before` is the id a page ended with; `limit` 1 to 200.

    With `after`, the page is the one just newer than that id. Of times, the lower bound is in, the upper is out.
    `run_at` is when a delayed job is due, of another one when it was first to be. `tags_any` wants one of its tags,
    `tags_all` every. `worker_id` finds what runs there, `error_code` what shows an error of that code.
    """

    states: frozenset[State] = frozenset()
    name: str | None = None
    queue: str | None = None
    tenant: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    run_at_after: datetime | None = None
    run_at_before: datetime | None = None
    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    key: str | None = None
    parent_id: JobId | None = None
    worker_id: WorkerId | None = None
    error_code: str | None = None
    before: JobId | None = None
    after: JobId | None = None
    limit: int = 50

    @property
    def needs_token(self) -> bool:
        """Say whether where a job stands decides about it, beside what it was enqueued as."""
        times = (self.finished_after, self.finished_before, self.run_at_after, self.run_at_before)
        wanted = (*times, self.worker_id, self.error_code)
        return bool(self.states) or any(each is not None for each in wanted)

    @property
    def needs_envelope(self) -> bool:
        """Say whether what it was enqueued as decides about it."""
        words = (self.name, self.queue, self.tenant, self.created_after, self.created_before, self.key, self.parent_id)
        return any((*words, self.tags_any, self.tags_all))

    @property
    def is_filtered(self) -> bool:
        """Say whether some jobs do not fit."""
        return self.needs_token or self.needs_envelope


# Nobody reads the difference beyond, and finding it would cost more with every job there is.
WAITING_LOOKED_AT = 10_000
MOST_COUNTED = 10_000
_LARGEST = 2**128 - 1


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

    async def list_by_time(self, query: ListQuery, order: TimeOrder) -> PlacedPage:
        """Give one page of jobs in states that the order has an index of; the query names no `before` and `after`.

        Jobs of one instant follow each other by their ids.
        """
        ...

    async def count_jobs(self, query: ListQuery) -> JobCount:
        """Count the jobs that fit, up to `MOST_COUNTED`, whatever page and limit the query names."""
        ...

    async def count_waiting(self, tenant: str, most: int) -> int:
        """Count a tenant's ready and delayed jobs, up to `most`, at a cost that does not grow with the store.

        Exact where the tenant has fewer jobs than `WAITING_LOOKED_AT` and `most`, ended ones included, or where no
        bucket has more of all tenants. Else the newest of the tenant are looked at, and the first of each bucket, and
        the count is the larger of both: never more than there are.
        """
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


def newer_than(before: JobId | None, first: JobId | None) -> JobId | None:
    """Give the id whose newer jobs come before a page: the page's first, or, of an empty one, the last before it."""
    if before is None:
        return None
    return JobId(UUID(int=max(before.int - 1, 0))) if first is None else first


def beside(place: Place, order: TimeOrder) -> Place:
    """Give what leads back from an empty page to the job it began behind: a place on this side of that job."""
    step = 1 if order.is_ascending is not order.is_back else -1
    return Place(place.at, JobId(UUID(int=min(max(place.id.int + step, 0), _LARGEST))))


def not_newer_than(after: JobId, last: JobId | None) -> JobId:
    """Give the id below which a page that was asked for by `after` goes on: of an empty one, just above `after`."""
    return JobId(UUID(int=min(after.int + 1, _LARGEST))) if last is None else last
