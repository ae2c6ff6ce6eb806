"""How long what is over is kept: ended jobs by state and job type, and everything else by kind.

Values and their arithmetic; what is deleted how is the drivers'. A job type's own `retention` stands for all its ended
jobs, whatever they ended as. Called by settings, drivers, the worker and control.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from .errors import SettingsInvalid
from .job import LONGEST_DURATION, SHORTEST_DURATION, JobId
from .outbox import SOURCE_KEPT, SOURCE_MARGIN
from .request_claim import REQUEST_KEPT
from .state import TERMINAL, State
from .webhook import DELIVERY_KEPT

# A round over a kind rests so many times as long as it took: whatever is kept for long is not read all the time.
REST_FACTOR = 10
# Rows of workers outlive the last job they may have run by this: clocks differ, and a body may end after its lease.
WORKER_MARGIN = timedelta(days=1)
# The clock of a process that minted a job's id may be ahead by this of the one that stamps events.
EVENT_MARGIN = timedelta(days=1)

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")


class Chore(StrEnum):
    """A kind of rows that workers delete by themselves, each in rounds of its own."""

    JOBS = "jobs"
    KEYS = "keys"
    SOURCES = "sources"
    EVENTS = "events"
    DRAINS = "drains"
    WORKERS = "workers"
    AUDIT = "audit"
    REQUESTS = "requests"
    DELIVERIES = "deliveries"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRule:
    """Which ended jobs are over: those of `states`, of `name` where one is given, kept longer than theirs.

    `by_name` holds the retention of job types with one of their own.
    """

    done: timedelta
    dead: timedelta
    by_name: Mapping[str, timedelta] = field(default_factory=dict)
    states: frozenset[State] = TERMINAL
    name: str | None = None
    tenant: str | None = None

    @classmethod
    def older_than(
        cls,
        age: timedelta,
        *,
        states: Iterable[State] = TERMINAL,
        name: str | None = None,
        tenant: str | None = None,
    ) -> EndedRule:
        """Give the rule of an operator: one age, whatever is configured."""
        return cls(done=age, dead=age, states=frozenset(states) & TERMINAL, name=name, tenant=tenant)

    @property
    def shortest(self) -> timedelta:
        """Give the shortest time anything is kept: jobs enqueued since cannot be over."""
        return min(self.done, self.dead, *self.by_name.values())

    def kept(self, name: str, state: State) -> timedelta:
        """Give how long an ended job of a type is kept."""
        own = self.by_name.get(name)
        return own if own is not None else self.dead if state is State.DEAD else self.done


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long everything is kept that is over. `done` also holds for cancelled jobs.

    `source` is how long a published row of the outbox is remembered, `record` is for reports of drains and rows of
    workers that have left, `audit` for what operators did.

    Raises:
        SettingsInvalid: a source would be forgotten before its job.
    """

    done: timedelta = timedelta(days=7)
    dead: timedelta = timedelta(days=30)
    source: timedelta = SOURCE_KEPT
    event: timedelta = timedelta(days=30)
    record: timedelta = timedelta(days=90)
    audit: timedelta = timedelta(days=365)
    by_name: Mapping[str, timedelta] = field(default_factory=dict)

    def __post_init__(self) -> None:
        longest = max(self.done, self.dead)
        if self.source < SOURCE_KEPT:
            raise SettingsInvalid(
                f"SOURCE_RETENTION_DAYS={days(self.source)} is less than the {days(SOURCE_KEPT)} days for which rows of"
                " the outbox may be published again",
                fix=f"set OUTLAST_SOURCE_RETENTION_DAYS to {days(SOURCE_KEPT)} or more",
            )
        if self.source < longest:
            raise SettingsInvalid(
                f"SOURCE_RETENTION_DAYS={days(self.source)} is less than the {days(longest)} days for which ended jobs"
                " are kept: a republished row could make a second job beside its first",
                fix=f"set OUTLAST_SOURCE_RETENTION_DAYS to {days(longest)} or more, or keep jobs for less",
            )

    def check(self, by_name: Mapping[str, timedelta]) -> None:
        """Refuse job types that would be kept longer than their sources.

        Raises:
            SettingsInvalid: names the job type with the longest retention.
        """
        name = max(by_name, key=lambda each: by_name[each], default=None)
        if name is not None and by_name[name] > self.source:
            raise SettingsInvalid(
                f"the job type {name!r} keeps its jobs for {days(by_name[name])} days, longer than"
                f" SOURCE_RETENTION_DAYS={days(self.source)}",
                fix=f"set OUTLAST_SOURCE_RETENTION_DAYS to {days(by_name[name])} or more, or lower its retention=",
            )

    @property
    def ended(self) -> EndedRule:
        """Give the rule of ended jobs."""
        return EndedRule(done=self.done, dead=self.dead, by_name=self.by_name)

    def kept(self, chore: Chore) -> timedelta:
        """Give how long the rows of a kind are kept once they are over, by the instant their own row names."""
        match chore:
            case Chore.JOBS:
                return self.ended.shortest
            case Chore.KEYS:
                return timedelta()
            case Chore.SOURCES:  # their row names the end of the shortest time they may be kept for
                return self.source - SOURCE_KEPT + SOURCE_MARGIN
            case Chore.EVENTS:
                return self.event
            case Chore.DRAINS:
                return self.record
            case Chore.WORKERS:
                return max(self.record, self.ended.shortest + WORKER_MARGIN)
            case Chore.AUDIT:
                return self.audit
            case Chore.REQUESTS | Chore.DELIVERIES:
                return REQUEST_KEPT if chore is Chore.REQUESTS else DELIVERY_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """Rows of an application's table that are deleted `older_than` after the time in `column`.

    `table` may name its schema: `audit.visits`. Times without a zone are taken for UTC.

    Raises:
        SettingsInvalid: a name cannot be an identifier, or the duration cannot work.
    """

    table: str
    older_than: timedelta
    column: str = "created_at"

    def __post_init__(self) -> None:
        parts = str(self.table).split(".")
        if len(parts) > 2 or not all(_IDENTIFIER.fullmatch(part) for part in parts):  # noqa: PLR2004 - schema, table
            raise SettingsInvalid(
                f"{self.table!r} cannot be the name of a table",
                fix="write purge('visits', …) or purge('audit.visits', …)",
            )
        if not _IDENTIFIER.fullmatch(str(self.column)):
            raise SettingsInvalid(
                f"{self.column!r} cannot be the name of a column", fix="name the column of a time, like 'created_at'"
            )
        check_retention("older_than", self.older_than)

    @property
    def parts(self) -> tuple[str, ...]:
        """Give the table's name, its schema before it where that is named."""
        return tuple(self.table.split("."))


class Purged(NamedTuple):
    """One step over ended jobs: how many were looked at and deleted, and the id to go on from; None at the end."""

    looked: int
    deleted: int
    next_after: JobId | None


class Tidied(NamedTuple):
    """One step of a round: rows deleted, whether the round is over, and how long ago the last full one began.

    `is_idle`: no step was taken. The kind rests, or another process is at it.
    """

    deleted: int
    is_over: bool
    behind: timedelta
    is_idle: bool = False


def check_retention(name: str, value: object) -> None:
    """Refuse a duration that cannot be how long something is kept.

    Raises:
        SettingsInvalid: it is no timedelta from one millisecond to ten years.
    """
    if not isinstance(value, timedelta) or not SHORTEST_DURATION <= value <= 2 * LONGEST_DURATION:
        raise SettingsInvalid(
            f"{name}={value!r} cannot work", fix=f"{name} must be a timedelta from one millisecond to ten years"
        )


def days(duration: timedelta) -> str:
    """Give a duration in days, as settings write it."""
    return f"{duration / timedelta(days=1):g}"
