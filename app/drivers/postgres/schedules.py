"""Schedules in PostgreSQL: one class that gives every verb its database. Owns the composition and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.job import NewJob
from ...domain.schedule import Decided, Declaration, Plan, ScheduleView, Standings
from ..schedules import ScheduleStore
from . import schedules_decide, schedules_declare, schedules_view
from .database import Database
from .look import look


class PostgresSchedules:
    """A `ScheduleStore` in PostgreSQL. What each verb does is said by the protocol."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # --- schedulers

    async def declare(self, declarations: Sequence[Declaration], *, is_start: bool = False) -> None:
        """Say what a living scheduler declares."""
        await schedules_declare.declare(self._db, declarations, is_start=is_start)

    async def standings(self, names: Sequence[str]) -> Standings:
        """Give where schedules stand."""
        return await schedules_view.standings(self._db, names)

    async def decide(self, plan: Plan) -> tuple[Decided, ...] | None:
        """Decide occurrences in one commit."""
        return await schedules_decide.decide(self._db, plan)

    async def trim(self, batch: int = 1000) -> int:
        """Delete old rows of occurrences."""
        return await schedules_declare.trim(self._db, batch)

    # --- operators and readers

    async def fire(self, name: str, job: NewJob, *, by: str, audit: AuditEntry | None = None) -> Decided:
        """Enqueue a job of a schedule now."""
        return await schedules_decide.fire(self._db, name, job, by=by, audit=audit)

    async def pause(self, name: str, *, by: str, reason: str | None = None, audit: AuditEntry | None = None) -> None:
        """Let a schedule skip its occurrences."""
        await schedules_declare.pause(self._db, name, by=by, reason=reason, audit=audit)

    async def resume(self, name: str, *, audit: AuditEntry | None = None) -> None:
        """Let it fire again from now on."""
        await schedules_declare.resume(self._db, name, audit=audit)

    async def schedules(self, *, occurrences: int = 1) -> tuple[ScheduleView, ...]:
        """Give every schedule by name."""
        return await look(self._db, lambda db: schedules_view.schedules(db, occurrences=occurrences))

    async def find(self, name: str, *, occurrences: int = 20) -> ScheduleView | None:
        """Give one schedule."""
        found = await schedules_view.schedules(self._db, name=name, occurrences=occurrences)
        return found[0] if found else None

    async def now(self) -> datetime:
        """Give the store's clock."""
        return (await schedules_view.standings(self._db, ())).now


_: type[ScheduleStore] = PostgresSchedules
