"""The outbox as values: what is staged in a caller's transaction, how its row ends, and what people see of it.

A row has one id for three things: the row, the job it becomes, and the source by which a republish finds that job
again. So whoever was given the id at staging finds the job under it, or the job that its key led to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NewType, TypeGuard
from uuid import UUID

from .errors import QueueFull
from .fault import OutlastError
from .job import Enqueued, JobId, NewJob
from .json_text import KIB, JsonLimits, decode
from .sealed import is_sealed

OutboxId = NewType("OutboxId", UUID)
RelayId = NewType("RelayId", UUID)

# How long a relay that said nothing keeps the rows it claimed. The one definition.
RELAY_LEASE = timedelta(seconds=30)
# How long a published row is remembered. A row that was claimed once and is older might make a second job.
SOURCE_KEPT = timedelta(days=90)
# Kept longer than that by this: the row's age is judged by another database's clock.
SOURCE_MARGIN = timedelta(days=1)
# Counting stops here: a backlog is not counted to its end by everyone who looks.
MOST_COUNTED = 10_000

# A row for a full queue rests for a part of the time it has waited so far, between these.
SHORTEST_DEFERRAL = timedelta(seconds=1)
LONGEST_DEFERRAL = timedelta(minutes=1)
DEFERRAL_PART = 4

STALE = "it was claimed once and is older than 90 days: whether it was published cannot be known any more"

# The most that any process may be told to admit.
_LARGEST = JsonLimits(max_bytes=16 * KIB * KIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedJob:
    """The answer to an enqueue in the caller's transaction: a job that exists once that transaction commits.

    Whether a live job holds its key is not known yet; `id` leads to that job then.
    """

    outbox_id: OutboxId
    id: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRow:
    """A row in a relay's hands. `is_stale`: it must not be published any more."""

    job: NewJob
    staged_at: datetime
    is_stale: bool = False

    @property
    def id(self) -> OutboxId:
        """Give the row's id."""
        return OutboxId(self.job.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Rows that a relay has taken for a lease. `is_full`: it took as many, or as much, as it may."""

    rows: tuple[StagedRow, ...]
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a row is never published as it is. `code` is None for a stale one. Quarantined rows wait for an operator."""

    id: OutboxId
    name: str
    code: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpublishedRow:
    """A row that is no job yet: one that waits for a relay or, with a `refusal`, for an operator."""

    tenant: str
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass of a relay did. `is_full`: it took as many rows as it may, so there may be more.

    `deferred` rows are for queues that take in no more now: they stay, and are tried again later.
    """

    published: int = 0
    deduped: int = 0
    deferred: int = 0
    quarantined: tuple[Refusal, ...] = ()
    is_full: bool = False

    @property
    def rows(self) -> int:
        """Give the number of rows that ended."""
        return self.published + self.deduped + len(self.quarantined)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that waits for an operator."""

    id: OutboxId
    name: str
    queue: str
    tenant: str
    staged_at: datetime
    quarantined_at: datetime
    code: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxView:
    """The outbox in one snapshot. Counts stop at `MOST_COUNTED`; `items` are the newest quarantined rows.

    `deferred` rows wait for a queue that was full.
    `lag` is the age of the oldest row that is neither published nor quarantined, zero without one.
    """

    staged: int
    claimed: int
    quarantined: int
    lag: timedelta
    oldest_at: datetime | None
    items: tuple[QuarantinedRow, ...] = ()
    deferred: int = 0


def refusal_of(row: StagedRow, error: OutlastError) -> Refusal:
    """Give what is written on a row that the store refuses for ever."""
    return Refusal(id=row.id, name=row.job.name, code=error.code, message=error.cause)


def unfit(row: StagedRow) -> Refusal | None:
    """Say why a row must not be published whatever the store thinks of it: too old, or no JSON that can be kept.

    Rows come from admission, and from whoever else writes to the table.
    """
    if row.is_stale:
        return Refusal(id=row.id, name=row.job.name, code=None, message=STALE)
    if is_sealed(row.job.payload):
        return None  # by who has the key, and relays need none
    try:
        decode(row.job.payload, limits=_LARGEST)
    except OutlastError as error:
        return refusal_of(row, error)
    return None


def is_refused_for_ever(error: BaseException) -> TypeGuard[OutlastError]:
    """Say whether publishing the same row again would end the same way."""
    return isinstance(error, OutlastError) and not error.retryable and error.code not in _PASSING


def is_for_full_queue(error: object) -> TypeGuard[QueueFull]:
    """Say whether a row's queue takes in no more for now: the row stays, and neither it nor the others have failed."""
    return isinstance(error, QueueFull)


def deferral_of(age: timedelta) -> timedelta:
    """Give how long a row that has waited for `age` rests before it is tried again."""
    return min(max(age / DEFERRAL_PART, SHORTEST_DEFERRAL), LONGEST_DEFERRAL)


def is_of_the_row(error: BaseException) -> bool:
    """Say whether a row whose publishing alone ended like this is put aside: whatever is not the store's trouble.

    Also what nobody foresaw, which would come again with every try; one odd row must not hold up those behind it.
    """
    if isinstance(error, OutlastError):
        return error.code == "INTERNAL" or is_refused_for_ever(error)
    return isinstance(error, Exception)


def failure_of(row: StagedRow, error: BaseException) -> Refusal:
    """Give what is written on a row that is put aside for whatever it ended with."""
    if isinstance(error, OutlastError):
        return refusal_of(row, error)
    said = f"publishing it ended with {type(error).__name__}: {error}"[:300]
    return Refusal(id=row.id, name=row.job.name, code="INTERNAL", message=said)


# What mends by itself or by an operator's hand on the database, and says nothing about the row.
_PASSING = frozenset({"SCHEMA_OUTDATED", "SETTINGS_INVALID", "INTERNAL", "NOT_IMPLEMENTED", "DRAINING", "QUEUE_FULL"})


def summed(answers: Iterable[tuple[StagedRow, Enqueued]]) -> tuple[int, int]:
    """Count the rows that became jobs of their own, and those whose key led to another job."""
    published = deduped = 0
    for row, answer in answers:
        if answer.id == row.job.id:
            published += 1
        else:
            deduped += 1
    return published, deduped
