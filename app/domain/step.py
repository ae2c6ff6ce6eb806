"""The durable history of a run: its steps as they are recorded, what it waits for, and what it says of itself.

A step has a name, unique in its run, and a place: a branch and a number in that branch's order of asking. Both are kept
so that other code's order is recognised. Values only; ErrorInfo lives beside outcomes, so failures are given by parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from .errors import RequestInvalid
from .job import ClaimToken, JobId, NewJob
from .state import State

STEP_NAME_MOST = 128  # characters, printable
MAX_LOG_LINES = 1000  # of one run; later ones are dropped, and the last kept says so
LINES_DROPPED = f"this line and later ones are dropped: a run keeps {MAX_LOG_LINES}"
LOG_LINE_MOST = 2048  # characters
PROGRESS_MESSAGE_MOST = 256  # characters

MAIN_BRANCH = ""


class StepKind(StrEnum):
    """What a step is; the values are the words of the HTTP API."""

    RUN = "run"
    TRANSACTION = "transaction"
    SLEEP = "sleep"
    EVENT = "event"
    CALL = "call"


# What gives a value of its own; the others hold what an event carried, or what a child returned.
OWN_KINDS = frozenset({StepKind.RUN, StepKind.TRANSACTION})


class RetryMode(StrEnum):
    """What an operator's retry does with the run: go on from what is recorded, or begin a new one."""

    RESUME = "resume"
    FRESH = "fresh"

    def refuse_step(self, from_step: str | None) -> None:
        """Refuse a step to begin from for a run that begins anew, and has none.

        Raises:
            RequestInvalid: there is one.
        """
        if self is RetryMode.FRESH and from_step is not None:
            raise RequestInvalid(
                "a fresh run has no step to begin from",
                fix="leave `from_step` out to begin anew, or the mode to go on from before the step",
                pointer="/from_step",
            )


class Place(NamedTuple):
    """Where in a run a step was asked for. `branch` is `MAIN_BRANCH` or a path such as `2.0`; `number` from 0."""

    branch: str
    number: int


class NewStep(NamedTuple):
    """A step to record. `value` is JSON text, None for nothing. `lasted` is the body's running time."""

    name: str
    kind: StepKind
    place: Place
    value: str | None
    lasted: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A recorded step. `seq` grows with every record of a store.

    `has_event` tells an event's payload from a wait that ran out of time. `child_id` is the job a call ran.
    """

    seq: int
    name: str
    kind: StepKind
    place: Place
    value: str | None
    claim_no: int
    code_version: str
    started_at: datetime
    ended_at: datetime
    has_event: bool = False
    child_id: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWait:
    """What a run waits for: a time, an event until a time, or a child.

    `is_known`: the store has it from an earlier suspension, and it is as it was then; the other fields are not read.
    `delay` counts from the suspension; `until` and `delay` exclude each other. `from_now`: only events emitted after
    the wait began, else any that the run has not taken since the job was enqueued or staged; of a fork, since that of
    the job it was made from. `child` is the job that a call runs, admitted, its `parent_id` the waiting job.
    """

    name: str
    kind: StepKind
    place: Place
    is_known: bool = False
    delay: timedelta | None = None
    until: datetime | None = None
    event: str | None = None
    key: str | None = None
    from_now: bool = False
    child: NewJob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitView:
    """A wait that is not over, or a call whose child failed.

    `child_state` is given once the child is dead or cancelled, or None with `is_child_gone` when it was deleted since;
    its last error by type, message and code.
    """

    name: str
    kind: StepKind
    place: Place
    began_at: datetime
    code_version: str
    due_at: datetime | None = None
    event: str | None = None
    key: str | None = None
    child_id: JobId | None = None
    child_state: State | None = None
    is_child_gone: bool = False
    child_error_type: str | None = None
    child_error_message: str | None = None
    child_error_code: str | None = None

    @property
    def has_failed(self) -> bool:
        """Say whether it is a call whose child will never give a result."""
        return self.is_child_gone or self.child_state in {State.DEAD, State.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """What is recorded of a run, in order of record, and what it waits for, in order of beginning."""

    steps: tuple[StepView, ...] = ()
    waits: tuple[WaitView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """How far a run says it has come: `value` from 0 to 1."""

    value: float
    message: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line that a run keeps with itself."""

    seq: int
    at: datetime
    claim_no: int
    message: str


class NewNotes(NamedTuple):
    """What a run says of itself under one claim: lines in order, and its latest progress."""

    token: ClaimToken
    lines: tuple[str, ...] = ()
    progress: tuple[float, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run for readers, in one snapshot."""

    history: RunHistory
    lines: tuple[LogLine, ...] = ()
    progress: ProgressView | None = None
    children: tuple[JobId, ...] = ()  # called or enqueued by it, oldest first, at most 100


def lines_kept(already: int, lines: tuple[str, ...]) -> tuple[str, ...]:
    """Give what a run that has `already` lines keeps of more; the last that it may have says what becomes of others."""
    room = MAX_LOG_LINES - 1 - already
    if len(lines) <= room:
        return lines
    return () if room < 0 else (*lines[:room], LINES_DROPPED)
