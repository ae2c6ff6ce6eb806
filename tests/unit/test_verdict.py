"""The whole table: claim held x first reason x how the body ended x budget, against the contract's seven lines."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from app.domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Interrupted,
    Outcome,
    Retried,
    Snoozed,
)
from app.domain.state import DeadReason
from app.domain.verdict import (
    Budget,
    Ended,
    Raised,
    Reason,
    Returned,
    Suspending,
    Unstorable,
    verdict,
)

BACKOFF = timedelta(seconds=7)
ASKED = timedelta(seconds=90)
NAP = timedelta(minutes=3)
BOOM = ErrorInfo(type="ValueError", message="boom", traceback="where it was")
BAD_RESULT = ErrorInfo(type="ResultInvalid", message="NaN", code="RESULT_INVALID")

ENDINGS: dict[str, Ended] = {
    "returned": Returned(result="1"),
    "unstorable": Unstorable(error=BAD_RESULT),
    "suspending": Suspending(delay=NAP),
    "raised": Raised(error=BOOM),
    "terminal": Raised(error=BOOM, is_terminal=True),
    "retry-after": Raised(error=BOOM, retry_after=ASKED),
    "outage": Raised(error=BOOM, is_outage=True),
    "terminal-outage": Raised(error=BOOM, is_terminal=True, is_outage=True),
    "terminal-retry-after": Raised(error=BOOM, is_terminal=True, retry_after=ASKED),
}
BUDGETS = {
    "left": Budget(attempt=1, max_attempts=3, timeout=timedelta(seconds=2)),
    "last": Budget(attempt=3, max_attempts=3, timeout=timedelta(seconds=2)),
    "over": Budget(attempt=4, max_attempts=3, timeout=timedelta(seconds=2)),
}
CASES = tuple(product((True, False), (None, *Reason), ENDINGS, BUDGETS))


def expected(is_held: bool, first: Reason | None, ending: str, budget: str) -> tuple[object, ...] | None:
    """The seven lines, written down a second time as a reader of the contract would."""
    if not is_held or first in {Reason.CANCEL, Reason.LEASE_LOST}:
        return None
    if ending == "returned":
        return (Completed, first is not None)
    if ending == "suspending":
        return (Snoozed, NAP)
    if first is Reason.DRAIN and ending != "unstorable":
        return (Interrupted, "drain", ASKED if "retry-after" in ending else None)
    if first is Reason.CALLER and ending != "unstorable":
        return (Cancelled,)
    return failure(first, ending, budget)


def failure(first: Reason | None, ending: str, budget: str) -> tuple[object, ...]:
    """What a failure comes to: past its deadline, terminal, or by budget."""
    code = BAD_RESULT.code if ending == "unstorable" else None
    if first in {Reason.TIMEOUT, Reason.DEADLINE}:
        code = code or "JOB_TIMEOUT"
    if first is Reason.DEADLINE:
        return (DeadLettered, code, DeadReason.DEADLINE)
    if first is None and ending.startswith("terminal"):
        return (DeadLettered, code, DeadReason.TERMINAL)
    if first is None and ending == "outage":
        return (Interrupted, "outage", BACKOFF)
    delay = ASKED if first is None and ending == "retry-after" else BACKOFF
    if budget == "left":
        return (Retried, code, delay)
    return (DeadLettered, code, DeadReason.ATTEMPTS_EXHAUSTED)


def summary(outcome: Outcome | None) -> tuple[object, ...] | None:
    match outcome:
        case None:
            return None
        case Completed(late=late):
            return (Completed, late)
        case Snoozed(delay=delay):
            return (Snoozed, delay)
        case Retried(error=error, delay=delay):
            return (Retried, error.code, delay)
        case DeadLettered(error=error, reason=reason):
            return (DeadLettered, error.code, reason)
        case Interrupted(cause=cause, delay=wait):
            return (Interrupted, cause, wait)
        case _:
            return (type(outcome),)


@pytest.mark.parametrize(("is_held", "first", "ending", "budget"), CASES)
def test_every_case_has_the_outcome_of_the_first_line_that_fits(
    is_held: bool, first: Reason | None, ending: str, budget: str
) -> None:
    outcome = verdict(is_held=is_held, first=first, ended=ENDINGS[ending], budget=BUDGETS[budget], backoff=BACKOFF)
    assert summary(outcome) == expected(is_held, first, ending, budget)


def test_a_timeout_names_its_limit_and_keeps_the_bodys_traceback() -> None:
    outcome = verdict(
        is_held=True, first=Reason.TIMEOUT, ended=Raised(error=BOOM), budget=BUDGETS["left"], backoff=BACKOFF
    )
    assert isinstance(outcome, Retried)
    assert outcome.error.message == "the attempt ran longer than its timeout of 2 s"
    assert outcome.error.traceback == "where it was"


def test_a_passed_deadline_says_so() -> None:
    outcome = verdict(
        is_held=True, first=Reason.DEADLINE, ended=Raised(error=BOOM), budget=BUDGETS["left"], backoff=BACKOFF
    )
    assert isinstance(outcome, DeadLettered)
    assert "deadline" in outcome.error.message


def test_an_interrupt_keeps_the_error_it_was_left_with() -> None:
    outcome = verdict(
        is_held=True, first=Reason.DRAIN, ended=Raised(error=BOOM), budget=BUDGETS["last"], backoff=BACKOFF
    )
    assert outcome == Interrupted(cause="drain", error=BOOM, delay=None)
