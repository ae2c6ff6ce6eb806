"""Workers that leave, as the store knows it: what they show of their drain, being asked for one, what it cost.

Values only. Times are the store's; a worker gives it spans and never its own clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from .job import JobId, WorkerId

# What a reason begins with where somebody has asked for a drain; their name follows.
ASKED_FOR_BY = "asked for by "
_LONGEST_RESERVE_SECONDS = 2.0


def reserve_seconds(seconds: float) -> float:
    """Give what a drain keeps back at its end: bodies are cancelled when it begins, abandoned at half of it."""
    return min(_LONGEST_RESERVE_SECONDS, seconds / 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainShown:
    """How far a worker's drain is; `left` is the time until its deadline, None for a stop without one.

    `told` is the time since it was told to leave.
    """

    phase: str
    reason: str | None = None
    left: timedelta | None = None
    told: timedelta | None = None


class DrainAsk(StrEnum):
    """What asking a worker to drain found.

    It will; it has left already; it was lost, its lease having passed without a word; or there never was such a worker.
    """

    ASKED = "asked"
    LEFT = "left"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedRun:
    """A run that a drain told to stop, and its fate.

    `fate` is `completed`, `interrupted`, `abandoned` or `other`; `has_ignored` says that it was cut without ever having
    read its signal.
    """

    job_id: JobId
    claim_no: int
    name: str
    fate: str
    has_ignored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """What a worker says of its own drain at its end; `lasted` is the time since it was told."""

    worker_id: WorkerId
    reason: str
    lasted: timedelta
    runs: tuple[DrainedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAgain:
    """A run of a drained worker, and how long after its end there the job was claimed again; None when it was not.

    `tenant` is None for a job that is kept no more.
    """

    run: DrainedRun
    claimed_after: timedelta | None
    tenant: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    """The report of a drained worker, with what became of its jobs since."""

    worker_id: WorkerId
    host: str
    code_version: str
    reason: str
    started_at: datetime
    ended_at: datetime
    runs: tuple[RunAgain, ...]


# The phase in which every body has ended or was given up: what is still claimed then is on nobody's conscience.
LAST_PHASE: Final = "close"
# Fates after which a job has to be claimed again.
CUT = frozenset({"interrupted", "abandoned"})
# So many reports are kept, the newest.
MOST_REPORTS = 1_000
