"""The controls of a queue as values: its pause, how many of its jobs may run or wait in it, and whether it is fair.

A queue without a setting is not limited in anything. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal, TypeAlias

from .errors import PreconditionFailed, QueueFull

# The most that any limit of a queue may be.
MOST_LIMIT = 1_000_000_000
# A depth is counted up to its maximum, or up to here where there is none.
MOST_COUNTED = 10_000
# For how long it is said that a pause has ended by itself: longer than it takes to hear of one that was short.
JUST_ENDED = timedelta(seconds=2)
# How long what was free after a costly count may be taken to be so.
COUNT_KEPT = timedelta(seconds=1)


class Keep(Enum):
    """Says of a setting that it stays as it is: None means that there is to be none."""

    KEEP = "keep"


KEEP = Keep.KEEP
Setting: TypeAlias = int | Literal[Keep.KEEP] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """What is to become of a queue's settings. `concurrency` is 1 or more, `max_depth` 0 or more, None takes it away.

    `is_fair`: its tenants take turns. `weights` are of the tenants that are named, 1 or more; None takes one away.
    """

    concurrency: Setting = KEEP
    max_depth: Setting = KEEP
    is_fair: bool | Literal[Keep.KEEP] = KEEP
    weights: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause: since when, by whom, why, and until when; without an `until` somebody has to end it."""

    at: datetime
    by: str
    reason: str | None = None
    until: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Say whether it has ended by itself."""
        return self.until is not None and self.until <= now

    def outlasts(self, other: Pause) -> bool:
        """Say whether it ends later than another one."""
        return other.until is not None and (self.until is None or self.until > other.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What of a queue decides whether its jobs are claimed and taken in, in one snapshot at the instant `at`.

    `running` counts claims that were not settled, whoever has them. `depth` counts ready and delayed jobs, up to the
    maximum, or up to `MOST_COUNTED` where there is none.
    """

    name: str
    at: datetime
    pause: Pause | None
    running: int
    concurrency: int | None
    depth: int
    max_depth: int | None
    is_fair: bool = False

    @property
    def is_at_limit(self) -> bool:
        """Say whether as many of its jobs run as may."""
        return self.concurrency is not None and self.running >= self.concurrency

    @property
    def is_full(self) -> bool:
        """Say whether it takes no more jobs in."""
        return self.max_depth is not None and self.depth >= self.max_depth


def version_of_queue(
    pause: Pause | None, concurrency: int | None, max_depth: int | None, *, is_fair: bool = False
) -> str:
    """Give an opaque word that changes whenever a setting of the queue does."""
    paused = None if pause is None else (pause.at, pause.by, pause.reason, pause.until)
    facts = (paused, concurrency, max_depth, is_fair)
    return hashlib.blake2b(repr(facts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def refuse_stale_queue(queue: str, version: str, versions: frozenset[str] | None) -> None:
    """Refuse to change a queue whose settings are not what the caller has seen.

    Raises:
        PreconditionFailed: they have changed.
    """
    if versions is not None and version not in versions:
        raise PreconditionFailed(
            f"the settings of the queue {queue} have changed since it was read",
            fix="read it again, decide again, and send its new ETag in If-Match",
        )


def queue_full(queue: str, max_depth: int) -> QueueFull:
    """Give the refusal of a job for a full queue."""
    return QueueFull(
        f"the queue {queue} takes in at most {max_depth} jobs that wait, and has as many",
        fix=f"enqueue again when some have begun, or raise it: outlast queues set {queue} --max-depth {max_depth * 2}",
        queue=queue,
        limit=max_depth,
    )
