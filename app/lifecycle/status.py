"""What a process shows of its drain: how far it is, what it still holds, and what became of the rest.

Values only; made by `shutdown` and the roles, in any thread, also while the event loop is blocked. Instants are on the
process's monotonic clock unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..domain.drain import LAST_PHASE


class DrainState(StrEnum):
    """Whether a process stays, leaves, or has left."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class DrainPhase(StrEnum):
    """How far a drain is: told to everyone, waiting for work in flight, closing."""

    ACCEPT = "accept"
    INFLIGHT = "inflight"
    CLOSE = LAST_PHASE


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A run that has not ended, of one tenant.

    `told_at` is when it was told to stop, `is_acknowledged` whether it has read that since, or has ended.
    """

    job_id: str
    job_type: str
    tenant: str
    step: str | None = None
    told_at: float | None = None
    is_acknowledged: bool = False

    @property
    def name(self) -> str:
        """Name the run for people: job type and id."""
        return f"{self.job_type} {self.job_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of the runs that a drain told to stop. `other`: failed, suspended, cancelled, or lost."""

    completed: int = 0
    interrupted: int = 0
    abandoned: int = 0
    other: int = 0

    def plus(self, more: Tally) -> Tally:
        """Give the sum of both."""
        return Tally(
            completed=self.completed + more.completed,
            interrupted=self.interrupted + more.interrupted,
            abandoned=self.abandoned + more.abandoned,
            other=self.other + more.other,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStatus:
    """One process's drain in one instant; a process that stays has neither phase nor times.

    `signal` is the one that started it, None when it was asked for in another way; `remaining` is in seconds.
    """

    state: DrainState
    phase: DrainPhase | None
    reason: str | None
    signal: str | None
    started_at: datetime | None
    deadline_at: datetime | None
    remaining: float | None
    now: float
    roles: Mapping[str, str]
    held: tuple[HeldRun, ...]
    tally: Tally
