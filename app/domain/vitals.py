"""What a store tells of its own health: facts, as it finds them in one look. Judging them is the doctor's.

Values only. A store that is no server has no `server`; one whose schema is not there yet has no `work`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from .job import WorkerId
from .pooled import Pooled

# Ready jobs are looked at so far, to see what they wait for.
MOST_LOOKED_AT = 100_000


class HolderKind(StrEnum):
    """Who keeps dead rows from being vacuumed away."""

    TRANSACTION = "transaction"
    PREPARED = "prepared"
    SLOT = "slot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Somebody who holds the horizon back. `name`: a session's process id, a prepared transaction's or a slot's name.

    `xids`: how many transaction ids ago. `age` is not known of a slot; `application` is who reads it now, if anybody.
    """

    kind: HolderKind
    name: str
    application: str | None
    age: timedelta | None
    xids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotVitals:
    """A replication slot that nobody reads, and the WAL in bytes that is kept for it."""

    name: str
    kept_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVitals:
    """A table of the schema: rows that live and dead ones by the server's count, and whether autovacuum cleans it."""

    name: str
    live: int
    dead: int
    is_vacuumed: bool
    vacuumed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTrouble:
    """An index that is missing or not valid, and the statement that mends it."""

    name: str
    trouble: str
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WallVitals:
    """The wall between tenants: its role, and whether it is there and may be taken. `gaps`: what lets rows through.

    `statements` are what an administrator would bring it back with.
    """

    role: str
    is_made: bool
    may_be_taken: bool = False
    gaps: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVitals:
    """The server behind a store. `version` is PostgreSQL's number, such as 180006.

    `revision` is the schema's, None without one; `required` the code's. `connections` counts those of clients now;
    `available` how many a role like ours may have in all. `is_clock_true`: the schema's clock is the server's.
    `settings` are those that decide what a crash of the server costs, and whether it vacuums. `denied` are statements
    that would grant the role what it lacks in the schema. `wall` is None where the schema is not the code's.
    """

    version: int
    database: str
    role: str
    schema: str
    revision: str | None
    required: str
    is_standby: bool
    is_read_only: bool
    is_clock_true: bool
    settings: dict[str, str]
    denied: tuple[str, ...]
    available: int
    connections: int
    pooled: Pooled | None
    missing: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    slots: tuple[SlotVitals, ...] = ()
    tables: tuple[TableVitals, ...] = ()
    indexes: tuple[IndexTrouble, ...] = ()
    wall: WallVitals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyGroup:
    """Ready jobs of one queue and type; `version` when they are kept for that code alone."""

    queue: str
    name: str
    version: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LostLease:
    """A worker whose lease has passed and whose row nobody has closed."""

    worker_id: WorkerId
    host: str
    lease_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTheWay:
    """Jobs that were taken out for another store and have not arrived there, the first of them at `since`.

    `target` is what tells that store from every other, `database` its name there. Of `late` ones it may have forgotten
    whether it has had them.
    """

    target: str
    database: str
    count: int
    late: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkVitals:
    """What lies in the store that nobody may be there for. `stranded`: claims of workers that are gone.

    `ready` is what the first `MOST_LOOKED_AT` ready jobs are.
    """

    ready: tuple[ReadyGroup, ...] = ()
    lost: tuple[LostLease, ...] = ()
    stranded: int = 0
    moves: tuple[OnTheWay, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """A store's health in facts. `at` is the machine's clock there, which is not the schema's in tests."""

    store: str
    is_durable: bool
    at: datetime
    server: ServerVitals | None = None
    work: WorkVitals | None = field(default=None)
