"""What the doctor looks at and what it says: values, and the bounds it judges by.

A check is a pure function of `Examined`. Nothing here asks the store. Used by the checks, the doctor, and who shows
what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from ...domain.audit import AuditView
from ...domain.errors import OutlastError
from ...domain.outbox import OutboxView
from ...domain.snapshot import JobTypeDoc, QueueView, WorkerView
from ...domain.vitals import ServerVitals, Vitals


class Level(StrEnum):
    """How bad it is: `fail` breaks a promise or stops work, `warn` costs speed or will; `skip` could not be asked."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found. `fix` says what to do, `commands` do it where it can be typed: SQL, shell, settings."""

    level: Level
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
    fix: str | None = None
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on something is said. `grace_margin`: what a process needs beyond its drain."""

    skew_warn: timedelta = timedelta(seconds=2)
    skew_fail: timedelta = timedelta(seconds=30)
    holder_age: timedelta = timedelta(minutes=10)
    holder_xids: int = 1_000_000
    slot_bytes: int = 1 << 30
    dead_rows: int = 200_000
    outbox_lag: timedelta = timedelta(minutes=1)
    lost_lease: timedelta = timedelta(seconds=30)
    on_the_way: timedelta = timedelta(minutes=1)
    grace_margin: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulesFound:
    """Whether the modules of OUTLAST_JOBS can be read, and how many job types they declare."""

    modules: tuple[str, ...]
    declared: int = 0
    error: OutlastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFound:
    """An address a process of ours would listen on. `taken_by`: None when it is free, else who answers there."""

    variable: str
    address: str
    taken_by: str | None = None
    is_ours: bool = False
    free_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the doctor's own process is set to. `modules` and `ports` are None where they are not looked at."""

    pool_size: int
    drain: timedelta
    lease: timedelta = timedelta(seconds=30)
    grace: timedelta | None = None
    modules: ModulesFound | None = None
    ports: tuple[PortFound, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """Everything the checks judge. `error` stands in for a store that does not answer.

    `now` is this machine's clock when the store was asked, halfway; `took` how long its answer was under way.
    `heard`: the round trip of a wake-up, None without one. `moved`: rows of the audit about moves, newest first, where
    one was cut. What needs the schema is empty without it.
    """

    now: datetime
    took: timedelta
    surroundings: Surroundings
    limits: Limits = field(default_factory=Limits)
    vitals: Vitals | None = None
    error: OutlastError | None = None
    heard: timedelta | None = None
    workers: tuple[WorkerView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    job_types: tuple[JobTypeDoc, ...] = ()
    outbox: OutboxView | None = None
    outbox_error: OutlastError | None = None
    store_now: datetime | None = None
    moved: tuple[AuditView, ...] = ()

    @property
    def server(self) -> ServerVitals | None:
        """Give what the server tells of itself, None without one."""
        return None if self.vitals is None else self.vitals.server


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its published code, what it looks at, when it warns or fails, and how it judges."""

    code: str
    title: str
    when: str
    judge: Callable[[Examined], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A check and what it found."""

    check: Check
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the doctor found, in the order of the checks."""

    at: datetime
    results: tuple[Result, ...]

    @property
    def level(self) -> Level:
        """Give the worst of all."""
        found = {result.finding.level for result in self.results}
        return next((level for level in (Level.FAIL, Level.WARN) if level in found), Level.OK)


def ok(text: str, **facts: object) -> Finding:
    """Give a finding that all is well."""
    return Finding(level=Level.OK, text=text, facts=facts)


def skip(text: str) -> Finding:
    """Give a finding that this could not be asked, or does not matter here."""
    return Finding(level=Level.SKIP, text=text)


def quoted(text: str) -> str:
    """Give a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def of_server(judge: Callable[[Examined, ServerVitals], Finding]) -> Callable[[Examined], Finding]:
    """Make a check of one that needs a server; without one it is skipped."""

    def judged(examined: Examined) -> Finding:
        server = examined.server
        if server is not None:
            return judge(examined, server)
        return skip("the store did not answer" if examined.vitals is None else "the store is no server")

    return judged
