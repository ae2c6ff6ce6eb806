"""The states of a job and the one table of moves between them.

Drivers move a job along this table and no other way; the docs page and the tests are generated from it. A state is
a bucket: at every instant a job is in exactly one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a job is; the values are the words of the HTTP API."""

    DELAYED = "delayed"
    READY = "ready"
    RUNNING = "running"
    SUSPENDED = "suspended"
    HELD = "held"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class DeadReason(StrEnum):
    """Why a dead letter stopped; stored as its `state_reason`."""

    TERMINAL = "terminal"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    CRASHED_TOO_OFTEN = "crashed_too_often"
    EXPIRED = "expired"
    DEADLINE = "deadline"


LIVE = frozenset({State.DELAYED, State.READY, State.RUNNING, State.SUSPENDED, State.HELD})
TERMINAL = frozenset({State.DONE, State.DEAD, State.CANCELLED})
RETRYABLE = frozenset({State.DEAD, State.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One legal move: from a state (None: the job is new) to another, and who causes it."""

    source: State | None
    target: State
    cause: str


def _moves(source: State | None, **targets: str) -> tuple[Move, ...]:
    return tuple(Move(source=source, target=State(name), cause=cause) for name, cause in targets.items())


MOVES: tuple[Move, ...] = (
    *_moves(None, ready="enqueue", delayed="enqueue with run_at or delay"),
    *_moves(
        State.DELAYED, ready="promote when due, run now, reschedule", cancelled="cancel", dead="expired or deadline"
    ),
    *_moves(
        State.READY,
        running="claim",
        delayed="reschedule",
        held="hand-back over",
        cancelled="cancel",
        dead="expired, deadline, or hand-back over",
    ),
    *_moves(
        State.RUNNING,
        done="settle completed",
        ready="settle interrupted, suspended with a wait that is over, or handed back, reap, surrender",
        delayed="settle retried, snoozed, or interrupted with a time",
        suspended="settle suspended",
        held="settle held",
        dead="settle dead-lettered, reap at max_crashes",
        cancelled="cancel, settle cancelled",
    ),
    *_moves(State.SUSPENDED, ready="wake, run now of a run that sleeps", cancelled="cancel", dead="deadline"),
    *_moves(State.HELD, ready="release, or retry fresh or from a step", cancelled="cancel", dead="deadline"),
    *_moves(State.DEAD, ready="operator's retry", delayed="operator's retry"),
    *_moves(State.CANCELLED, ready="operator's retry", delayed="operator's retry"),
)

_LEGAL = frozenset((move.source, move.target) for move in MOVES)


def is_legal(source: State | None, target: State) -> bool:
    """Say whether the table has this move."""
    return (source, target) in _LEGAL
