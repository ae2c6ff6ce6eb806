"""What attempts came to over time: counts by outcome and histograms of waits and durations, by job type and queue.

Kept in stretches of three lengths, each for as long as a chart of it reaches back. A histogram is counts by bucket, the
first that a duration does not exceed, and the unbounded one last. No I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple
from uuid import UUID

ATTEMPT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)


class FlowOutcome(StrEnum):
    """How attempts are told apart: those of `outlast_jobs_total`, and those that count against no job."""

    OK = "ok"
    FAILED = "failed"
    DEAD = "dead"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"
    LEASE_LOST = "lease_lost"


OUTCOMES = tuple(FlowOutcome)


class FlowTier(NamedTuple):
    """A length of stretches, and for how long they are kept."""

    length: timedelta
    kept: timedelta

    @property
    def number(self) -> int:
        """Give the length in seconds, by which stretches are stored."""
        return int(self.length.total_seconds())


TIERS = (
    FlowTier(timedelta(minutes=1), timedelta(hours=2)),
    FlowTier(timedelta(minutes=15), timedelta(hours=26)),
    FlowTier(timedelta(hours=1), timedelta(days=8)),
)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts by outcome in the order of `OUTCOMES`, waits before first starts and durations of attempts by bucket."""

    counts: tuple[int, ...] = (0,) * len(OUTCOMES)
    waits: tuple[int, ...] = (0,) * (len(WAIT_BUCKETS) + 1)
    runs: tuple[int, ...] = (0,) * (len(ATTEMPT_BUCKETS) + 1)

    def __add__(self, other: Tally) -> Tally:
        return Tally(_sums(self.counts, other.counts), _sums(self.waits, other.waits), _sums(self.runs, other.runs))

    def of(self, outcome: FlowOutcome) -> int:
        """Give how many attempts ended so."""
        return self.counts[OUTCOMES.index(outcome)]

    @property
    def failed(self) -> int:
        """Give how many attempts failed, the last ones of dead jobs included; what counts against no job is not."""
        return self.of(FlowOutcome.FAILED) + self.of(FlowOutcome.DEAD)

    @property
    def is_empty(self) -> bool:
        """Say whether nothing was counted."""
        return not (any(self.counts) or any(self.waits) or any(self.runs))


class FlowPart(NamedTuple):
    """What one process counted of a job type in a queue since it said so last."""

    name: str
    queue: str
    tally: Tally


class FlowBatch(NamedTuple):
    """What one process adds at once. It is added again, as it is, until the store says so, and counted once."""

    id: UUID
    parts: tuple[FlowPart, ...]


class FlowPoint(NamedTuple):
    """A stretch of time, and what all job types of the filter came to in it."""

    at: datetime
    tally: Tally


class FlowKind(NamedTuple):
    """A job type, and what it came to over a window."""

    name: str
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowQuery:
    """Which stretches: of a tier, those that begin at `since` or later; of one job type or queue on demand."""

    tier: FlowTier
    since: datetime
    name: str | None = None
    queue: str | None = None


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Give the seconds below which that share of a histogram lies, evenly spread within its bucket; None of nothing.

    What exceeds every bound is taken for the last one.
    """
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    upto = list(accumulate(counts))
    place = min(bisect_right(upto, wanted), len(counts) - 1)
    while counts[place] == 0:
        place -= 1
    if place >= len(bounds):
        return bounds[-1]
    low = bounds[place - 1] if place else 0.0
    below = upto[place - 1] if place else 0
    return low + (bounds[place] - low) * min(max((wanted - below) / counts[place], 0.0), 1.0)


def _sums(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))
