"""Jobs that leave one database for another: what is taken, what stays and why, and what the target says to each.

Values only. A move is known by an id of its own, minted when its job is taken out of the source: by it the target knows
a job that it was sent before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from .job import JobId
from .state import State


class Bucket(StrEnum):
    """Where jobs that can be moved are, in the order in which they are taken."""

    READY = "ready"
    GATE = "gate"
    WAITING = "waiting"


class Stays(StrEnum):
    """Why a ready or delayed job stays where it is."""

    SLOTS = "slots"
    HANDED = "handed"
    WAITS = "waits"
    CALLED = "called"


WHY = {
    Stays.SLOTS: "holds slots of a limit here",
    Stays.HANDED: "is kept for workers of the code version that it began with",
    Stays.WAITS: "waits here for an event, a time or another job as well",
    Stays.CALLED: "is waited for by a run that stays here",
}
STAYING = (State.RUNNING, State.SUSPENDED, State.HELD)


class Verdict(StrEnum):
    """What the target says to a job it is sent."""

    MOVED = "moved"
    THERE = "there"  # it has a job of that id
    KEY_TAKEN = "key_taken"  # another job has its idempotency key there, within its window


class Moving(NamedTuple):
    """A job on its way. `document` is the whole of it, as JSON text."""

    id: UUID
    job_id: JobId
    name: str
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One step of taking jobs out: how many, how many stayed and why, and where to go on; None: the bucket is done."""

    taken: int
    stayed: Mapping[Stays, int] = field(default_factory=dict)
    after: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCount:
    """Live jobs before a move: those that go as far as is known, those that stay, and those on their way since before.

    Jobs that stay for one of the reasons of `Stays` are found when it is their turn.
    """

    going: Mapping[State, int]
    staying: Mapping[State, int]
    on_the_way: int
