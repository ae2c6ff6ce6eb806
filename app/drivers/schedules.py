"""What a store of schedules does: declarations, how far each schedule is decided, and one row per occurrence.

Apart from `JobDriver`: a store without schedules still runs jobs. Any number of schedulers may work at once and none
leads: deciding takes the schedule's row, an occurrence is a row of its own, and what fires is enqueued in the same
commit. Called by the scheduler and control.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from ..domain.audit import AuditEntry
from ..domain.job import NewJob
from ..domain.schedule import Decided, Declaration, Plan, ScheduleView, Standings


class ScheduleStore(Protocol):
    """The schedules of one database."""

    # --- schedulers

    async def declare(self, declarations: Sequence[Declaration], *, is_start: bool = False) -> None:
        """Say what a living scheduler declares; repeated while it lives, which is how its declarations stay known.

        Of the declarations of a name that were shown within `DECLARATION_KEPT`, the one that came last stands. One that
        was not shown for longer comes anew with a scheduler that starts (`is_start`): that is a rollback. One that was
        held up so long keeps its place behind what has come since. A new
        schedule begins now, and so does one whose expression or zone changed: nothing before is due.
        """
        ...

    async def standings(self, names: Sequence[str]) -> Standings:
        """Give where schedules stand, and the store's time; names it does not know are left out."""
        ...

    async def decide(self, plan: Plan) -> tuple[Decided, ...] | None:
        """Decide occurrences, and enqueue the jobs of those that fire, in one commit; gives what this call decided.

        Occurrences that are decided already are left alone. A job that is refused, or whose key is taken, makes its
        occurrence skipped, and leaves the others. None: the plan is not about the newest declaration, the schedule is
        paused or not against what the plan supposes, or somebody else decides it right now. Repeating is safe.
        """
        ...

    async def trim(self, batch: int = 1000) -> int:
        """Delete rows of occurrences older than `OCCURRENCES_KEPT`; gives their number. Any scheduler, no leader."""
        ...

    # --- operators and readers

    async def fire(self, name: str, job: NewJob, *, by: str, audit: AuditEntry | None = None) -> Decided:
        """Enqueue a job of a schedule now, whatever its pause and overlap say; the row names who asked.

        The watermark stays. `NOT_FOUND` for an unknown schedule. What refuses the job is raised, and nothing is kept.
        """
        ...

    async def pause(self, name: str, *, by: str, reason: str | None = None, audit: AuditEntry | None = None) -> None:
        """Let a schedule skip its occurrences from now on; the first pause stands. `NOT_FOUND`."""
        ...

    async def resume(self, name: str, *, audit: AuditEntry | None = None) -> None:
        """Let it fire again from now on; nothing of the pause is caught up. `NOT_FOUND`."""
        ...

    async def schedules(self, *, occurrences: int = 1) -> tuple[ScheduleView, ...]:
        """Give every schedule by name, each with its newest occurrences."""
        ...

    async def find(self, name: str, *, occurrences: int = 20) -> ScheduleView | None:
        """Give one schedule with its newest occurrences, None for an unknown one."""
        ...

    async def now(self) -> datetime:
        """Give the store's clock."""
        ...


@runtime_checkable
class HasSchedules(Protocol):
    """A driver with schedules beside its jobs."""

    @property
    def schedules(self) -> ScheduleStore:
        """Give the schedules of the database that holds the jobs."""
        ...


def schedules_of(driver: object) -> ScheduleStore | None:
    """Give the schedules beside a driver's jobs, None for a driver without."""
    return driver.schedules if isinstance(driver, HasSchedules) else None
