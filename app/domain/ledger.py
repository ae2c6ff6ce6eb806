"""The words of the attempt ledger: what each ended attempt is recorded with, and how many rows a job keeps.

Pure rules both stores share, so that a row reads the same wherever it was written. Called by the drivers.
"""

from __future__ import annotations

from typing import assert_never

from .errors import CrashedTooOften, JobExpired, JobTimeout
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

# A job that fails for ever keeps how it began and how it went last.
FIRST_KEPT = 20
LAST_KEPT = 80

CAUSE_ERROR = "error"
CAUSE_TIMEOUT = "timeout"
CAUSE_DEADLINE = "deadline"
CAUSE_DRAIN = "drain"
CAUSE_OUTAGE = "outage"
CAUSE_ABANDONED = "abandoned"
CAUSE_WORKER_CLOSED = "worker_closed"
CAUSE_WORKER_VANISHED = "worker_vanished"
CAUSE_LEASE_LOST = "lease_lost"
CAUSE_OPERATOR = "operator"
CAUSE_CALLER = "caller"
CAUSE_RETURNED = "returned"
CAUSE_LATE = "late"
CAUSE_SUSPENDED = "suspended"
CAUSE_HELD = "held"
CAUSE_HANDED_BACK = "handed_back"

# The crash that spends the budget is recorded with this; a crash before it has no error of its own.
CRASHED_TOO_OFTEN = ErrorInfo(
    type=CrashedTooOften.__name__,
    message="workers vanished while running this job as often as its max_crashes allows",
    code=CrashedTooOften.code,
)

# What a job shows that ended while it waited: there is no attempt whose error it could be.
_ENDED_WAITING = {
    DeadReason.EXPIRED: ErrorInfo(
        type=JobExpired.__name__,
        message="the job was not started within its max_queue_time",
        code=JobExpired.code,
    ),
    DeadReason.DEADLINE: ErrorInfo(
        type=JobTimeout.__name__,
        message="the job's deadline passed while it waited",
        code=JobTimeout.code,
    ),
}

# The codes of those errors, which jobs are looked for by, and why their jobs stopped.
CODES_OF_ENDS = {str(error.code): reason for reason, error in _ENDED_WAITING.items()}


def error_of_end(reason: str | None) -> ErrorInfo | None:
    """Give the error of a dead letter whose attempts left none, by its reason."""
    return next((error for known, error in _ENDED_WAITING.items() if known == reason), None)


def cause_of(outcome: Outcome) -> str:
    """Give the cause a settled attempt is recorded with."""
    match outcome:
        case Completed(late=late):
            return CAUSE_LATE if late else CAUSE_RETURNED
        case Snoozed() | Suspended():
            return CAUSE_SUSPENDED
        case Retried(error=error):
            return _failure_cause(error)
        case DeadLettered(error=error, reason=reason):
            return CAUSE_DEADLINE if reason is DeadReason.DEADLINE else _failure_cause(error)
        case Interrupted(cause=cause):
            return cause
        case Cancelled():
            return CAUSE_CALLER
        case Held():
            return CAUSE_HELD
        case _:
            assert_never(outcome)


def error_of(outcome: Outcome) -> ErrorInfo | None:
    """Give the error a settled attempt is recorded with."""
    return None if isinstance(outcome, Completed | Snoozed | Suspended) else outcome.error


def _failure_cause(error: ErrorInfo) -> str:
    return CAUSE_TIMEOUT if error.code == JobTimeout.code else CAUSE_ERROR
