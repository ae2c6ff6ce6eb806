"""The verdict: what one attempt becomes, from who told it to stop first and how its body ended.

A pure function over the seven lines of the contract, the first that fits. Whether a body was cut is read off its
signal's first reason, never guessed from the exception. Called by `worker.run`; the table test walks every case.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias, assert_never

from .errors import JobTimeout
from .ledger import CAUSE_DRAIN, CAUSE_OUTAGE
from .outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Held,
    Interrupted,
    Outcome,
    Retried,
    Snoozed,
    Suspended,
)
from .state import DeadReason
from .step import NewWait


class Reason(StrEnum):
    """Why a run was told to stop."""

    TIMEOUT = "timeout"
    DEADLINE = "deadline"
    CANCEL = "cancel"
    LEASE_LOST = "lease_lost"
    DRAIN = "drain"
    CALLER = "caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The body returned; `result` is storable JSON text, None for nothing."""

    result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstorable:
    """The body returned what cannot be stored; `error` is coded `RESULT_INVALID`."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspending:
    """The body gave its worker back and wakes after `delay`."""

    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The run waits for a time, an event or a child: at least one wait."""

    waits: tuple[NewWait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatched:
    """The code does not match the run, or its model refuses the payload. `reason` says where.

    `version` is the code that recorded the run, when it is other than the worker's. `or_dead`: it is the payload.
    """

    error: ErrorInfo
    reason: str
    version: str | None = None
    or_dead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The body raised. `is_terminal`: no retry can help. `retry_after`: the body asked for this wait.

    `is_outage`: the database went away under it, which is nobody's failure.
    """

    error: ErrorInfo
    is_terminal: bool = False
    is_outage: bool = False
    retry_after: timedelta | None = None


Ended: TypeAlias = Returned | Unstorable | Suspending | Waiting | Mismatched | Raised

# With either as first reason the claim has gone already: an operator's cancel is terminal in the store before the
# body hears of it, and a worker without a lease holds nothing.
GONE = frozenset({Reason.CANCEL, Reason.LEASE_LOST})

CALLER_REASON = "cancelled by the caller that runs the worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a failure is measured against: the number of this attempt, the most there may be, and its time limit."""

    attempt: int
    max_attempts: int
    timeout: timedelta | None = None

    @property
    def is_spent(self) -> bool:
        """Say whether a failure of this attempt leaves no other."""
        return self.attempt >= self.max_attempts


def verdict(*, is_held: bool, first: Reason | None, ended: Ended, budget: Budget, backoff: timedelta) -> Outcome | None:
    """Decide what is settled, None for nothing.

    `is_held` is False once the claim is known to be gone or this process judged its own lease over. `backoff` is the
    wait the policy gives for this attempt with its roll made.
    """
    if not is_held or first in GONE:
        return None
    match ended:
        case Returned(result=result):
            return Completed(result=result, late=first is not None)
        case Unstorable(error=error):
            return _failure(error, first=first, budget=budget, delay=backoff)
        case Suspending(delay=delay):
            return Snoozed(delay=delay)
        case Waiting(waits=waits):
            return Suspended(waits=waits)
        case Mismatched() if first is None:
            return Held(reason=ended.reason, error=ended.error, version=ended.version, or_dead=ended.or_dead)
        case Mismatched(error=error):
            return _raised(Raised(error=error), first=first, budget=budget, backoff=backoff)
        case Raised():
            return _raised(ended, first=first, budget=budget, backoff=backoff)
        case _:
            assert_never(ended)


def _raised(ended: Raised, *, first: Reason | None, budget: Budget, backoff: timedelta) -> Outcome | None:
    match first:
        case Reason.DRAIN:
            return Interrupted(cause=CAUSE_DRAIN, error=ended.error, delay=ended.retry_after)
        case Reason.TIMEOUT | Reason.DEADLINE:
            return _failure(_timed_out(ended.error, first, budget), first=first, budget=budget, delay=backoff)
        case Reason.CALLER:
            return Cancelled(reason=CALLER_REASON, error=ended.error)
        case None:
            if ended.is_terminal:
                return DeadLettered(error=ended.error, reason=DeadReason.TERMINAL)
            delay = backoff if ended.retry_after is None else ended.retry_after
            if ended.is_outage:
                return Interrupted(cause=CAUSE_OUTAGE, error=ended.error, delay=delay)
            return _failure(ended.error, first=None, budget=budget, delay=delay)
        case Reason.CANCEL | Reason.LEASE_LOST:
            return None
        case _:
            assert_never(first)


def _failure(error: ErrorInfo, *, first: Reason | None, budget: Budget, delay: timedelta) -> Outcome:
    """Spend the budget: a job past its deadline or out of attempts is dead, any other runs again after `delay`."""
    if first is Reason.DEADLINE:
        return DeadLettered(error=error, reason=DeadReason.DEADLINE)
    if budget.is_spent:
        return DeadLettered(error=error, reason=DeadReason.ATTEMPTS_EXHAUSTED)
    return Retried(error=error, delay=delay)


def _timed_out(raised: ErrorInfo, first: Reason, budget: Budget) -> ErrorInfo:
    """Name the limit that was passed; the traceback stays the body's, it shows where the time went."""
    if first is Reason.DEADLINE:
        message = "the job's deadline passed while it ran"
    elif budget.timeout is None:
        message = "the attempt ran longer than its timeout"
    else:
        message = f"the attempt ran longer than its timeout of {budget.timeout.total_seconds():g} s"
    return ErrorInfo(type=JobTimeout.__name__, message=message, code=JobTimeout.code, traceback=raised.traceback)
