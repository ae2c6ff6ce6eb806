"""How an attempt ends: the closed set of outcomes a worker settles with, and what the store answers.

`crashed` and `lease_lost` are never settled by the worker that ran the attempt: the reaper reports the first, a
worker that surrenders its claims the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from .job import ClaimToken
from .state import DeadReason
from .step import NewWait


class OutcomeKind(StrEnum):
    """The words an attempt's end is recorded with."""

    COMPLETED = "completed"
    SUSPENDED = "suspended"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    LEASE_LOST = "lease_lost"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRule:
    """What an outcome does to the books: the attempt count and the label of `outlast_jobs_total`."""

    kind: OutcomeKind
    counted: bool
    label: str | None
    ledger: bool
    when: str


OUTCOME_RULES: tuple[OutcomeRule, ...] = (
    OutcomeRule(kind=OutcomeKind.COMPLETED, counted=True, label="ok", ledger=False, when="the body returned"),
    OutcomeRule(kind=OutcomeKind.SUSPENDED, counted=False, label=None, ledger=False, when="the run waits, or Snooze"),
    OutcomeRule(kind=OutcomeKind.RETRIED, counted=True, label="failed", ledger=True, when="failure, budget left"),
    OutcomeRule(
        kind=OutcomeKind.DEAD_LETTERED,
        counted=True,
        label="dead",
        ledger=True,
        when="failure, budget spent or terminal",
    ),
    OutcomeRule(kind=OutcomeKind.INTERRUPTED, counted=False, label=None, ledger=True, when="the worker's drain"),
    OutcomeRule(kind=OutcomeKind.CANCELLED, counted=False, label=None, ledger=True, when="by caller or operator"),
    OutcomeRule(kind=OutcomeKind.CRASHED, counted=False, label=None, ledger=True, when="the worker vanished"),
    OutcomeRule(
        kind=OutcomeKind.LEASE_LOST, counted=False, label=None, ledger=True, when="surrendered after a lost lease"
    ),
    OutcomeRule(kind=OutcomeKind.HELD, counted=False, label=None, ledger=True, when="the code does not match the run"),
)

# The `state_reason` of a child that was cancelled because the run that waited for it was.
PARENT_CANCELLED = "parent cancelled"

# How long a job is kept for workers of the code that recorded its run.
HAND_BACK = timedelta(hours=1)

RULE_OF: dict[OutcomeKind, OutcomeRule] = {rule.kind: rule for rule in OUTCOME_RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """A failure as it is stored: bounded, free of NUL and lone surrogates (`domain.text.storable` makes it so)."""

    type: str
    message: str
    code: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The body returned; `result` is JSON text, None for a body that returned nothing. `late`: after its signal."""

    result: str | None = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snoozed:
    """The body asked to be run again after `delay` (Snooze); the job is delayed."""

    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The run gives its worker back until one of `waits` is over; there is at least one.

    Those the run did not wait for before are stored with it, and the children of new calls are enqueued in the same
    commit. When one of them is over by then, the job is ready at once.
    """

    waits: tuple[NewWait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """A counted failure with budget left; ready again after `delay`."""

    error: ErrorInfo
    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """A counted failure with no way on."""

    error: ErrorInfo
    reason: DeadReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Cut by the worker's own drain, or by the database: uncounted, ready at once or, where it is given, after `delay`.

    After a drain that is the time of a `RetryAfter`, after an outage the wait before any other retry.
    """

    cause: str
    error: ErrorInfo | None = None
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Ended by the caller that embeds the worker; `reason` becomes the job's `state_reason`."""

    reason: str
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The code at hand does not match the run or its payload.

    With `version`, the code that recorded the run: while workers of it live, the job is ready for them alone, for up to
    `HAND_BACK`; else it is held, and is ready again once such a worker comes. Without, an operator decides. With
    `or_dead` the job goes to the newest code that lives and serves its type instead, if that is not the worker's own,
    and is dead, terminal, when there is none or the time is over.
    """

    reason: str
    error: ErrorInfo | None = None
    version: str | None = None
    or_dead: bool = False


Outcome: TypeAlias = Completed | Snoozed | Suspended | Retried | DeadLettered | Interrupted | Cancelled | Held

KIND_OF: dict[type[Outcome], OutcomeKind] = {
    Completed: OutcomeKind.COMPLETED,
    Snoozed: OutcomeKind.SUSPENDED,
    Suspended: OutcomeKind.SUSPENDED,
    Retried: OutcomeKind.RETRIED,
    DeadLettered: OutcomeKind.DEAD_LETTERED,
    Interrupted: OutcomeKind.INTERRUPTED,
    Cancelled: OutcomeKind.CANCELLED,
    Held: OutcomeKind.HELD,
}


class Settlement(NamedTuple):
    """One attempt to close: the claim that fences the write and the outcome to record.

    `is_keyed` unless the job is known to have no idempotency key and no callback: then there is no key to free and
    nobody to tell, and neither is looked for.
    `is_child` when the job has a parent, whose run may wait for its end. `has_waits` when the run at hand has waits in
    the store: a job that is done drops them all, a cancelled one all but failed calls. A counted failure drops what
    is named in `forgets`: calls whose child failed, and recorded events that did not come in time, which the next
    attempt is to wait for anew. `step` is the one that was reached, for the ledger.
    """

    token: ClaimToken
    outcome: Outcome
    is_keyed: bool = True
    is_child: bool = False
    has_waits: bool = False
    forgets: tuple[str, ...] = ()
    step: str | None = None


class SettleAnswer(StrEnum):
    """What the store did with a settlement. Anything but SETTLED means the claim was gone and nothing was stored."""

    SETTLED = "settled"
    CANCELLED = "cancelled"
    DELETED = "deleted"
    REAPED = "reaped"


class CancelVerdict(StrEnum):
    """What a cancel found."""

    CANCELLED_BEFORE_START = "cancelled_before_start"
    CANCELLED_WHILE_WAITING = "cancelled_while_waiting"
    SIGNALLED = "signalled"
    ALREADY_FINISHED = "already_finished"
