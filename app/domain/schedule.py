"""Schedules as values: what is declared, what stands in a store, and which occurrences a scheduler decides how.

An occurrence is one instant at which a schedule's rule holds; each is decided once, and keeps a row. Pure: the rule
itself, which needs a calendar, is `jobs.cron`. Called by drivers, the scheduler, control and the authors' API.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

from .fault import OutlastError
from .job import JobId, NewJob
from .text import storable

DEFAULT_MAX_CATCH_UP = 10
MOST_CATCH_UP = 100
# Declarations no scheduler has shown for so long do not count any more.
DECLARATION_KEPT = timedelta(seconds=60)
# What `catch_up="none"` still takes for punctual.
PUNCTUAL = timedelta(seconds=60)
# Of a longer gap the newest are decided one by one, and the others passed over.
MOST_DECIDED = 10_000
# How long rows of occurrences are kept.
OCCURRENCES_KEPT = timedelta(days=90)
MAX_WHY_BYTES = 1024

WHY_CATCH_UP = "catch_up"
WHY_OVERLAP = "overlap"
WHY_PAUSED = "paused"
WHY_DEDUPED = "deduped"


class CatchUp(StrEnum):
    """What becomes of occurrences that no scheduler was there for."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """What becomes of an occurrence while a job of an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"


class OccurrenceOutcome(StrEnum):
    """How an occurrence was decided."""

    FIRED = "fired"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A schedule as one version of the code declares it; `document` is JSON and says everything else."""

    name: str
    code_version: str
    cron: str
    tz: str
    document: str

    @property
    def digest(self) -> str:
        """Give what tells this declaration from every other one of its name."""
        text = json.dumps([self.code_version, self.cron, self.tz, self.document], ensure_ascii=True)
        return sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a schedule stands: which declaration is its newest, and up to which instant all is decided."""

    name: str
    digest: str
    watermark: datetime
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """Where schedules stand, at one instant of the store's clock."""

    now: datetime
    by_name: dict[str, Standing]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One occurrence to decide: with a job it fires, without it is skipped, and `why` says why."""

    at: datetime
    job: NewJob | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a scheduler wants to decide of one schedule, in the order of the instants.

    The store takes it only while `digest` is the newest declaration and the schedule is, or is not, paused as the plan
    supposes. All up to `until` is decided then.
    """

    name: str
    digest: str
    until: datetime
    planned: tuple[Planned, ...]
    overlap: Overlap
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """How an occurrence was decided. `job_id`: the job it became, or that stood in its way."""

    at: datetime
    outcome: OccurrenceOutcome
    why: str | None = None
    job_id: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceView:
    """A decided occurrence as its row tells it. `by`: who fired it by hand, None where the rule did."""

    at: datetime
    outcome: OccurrenceOutcome
    why: str | None
    job_id: JobId | None
    decided_at: datetime
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule as people see it, with its newest occurrences. `seen_at`: when a scheduler last declared it."""

    name: str
    cron: str
    tz: str
    code_version: str
    document: str
    published_at: datetime
    seen_at: datetime
    watermark: datetime
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    occurrences: tuple[OccurrenceView, ...] = ()

    def is_declared(self, now: datetime) -> bool:
        """Say whether a scheduler that lives declares it: without one nothing fires."""
        return now - self.seen_at <= DECLARATION_KEPT


def chosen(due: Sequence[datetime], catch_up: CatchUp, *, most: int, now: datetime) -> frozenset[datetime]:
    """Give those of the due instants that fire, the others being missed: by policy, counted from the newest."""
    match catch_up:
        case CatchUp.ALL:
            return frozenset(due[-most:])
        case CatchUp.LATEST:
            return frozenset(due[-1:])
        case CatchUp.NONE:
            return frozenset(at for at in due[-1:] if now - at < PUNCTUAL)


def refused(at: datetime, error: BaseException) -> Decided:
    """Give an occurrence whose job the store refuses; a key that is held elsewhere names the holder."""
    said = f"{error.code}: {error.cause}" if isinstance(error, OutlastError) else f"{type(error).__name__}: {error}"
    holder = error.details.get("existing_id") if isinstance(error, OutlastError) else None
    why, _ = storable(said, MAX_WHY_BYTES)
    job_id = JobId(holder) if isinstance(holder, UUID) else None
    return Decided(at=at, outcome=OccurrenceOutcome.SKIPPED, why=why, job_id=job_id)
