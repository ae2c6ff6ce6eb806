from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest

from app.domain.ledger import cause_of, error_of
from app.domain.outcome import (
    KIND_OF,
    OUTCOME_RULES,
    RULE_OF,
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Held,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    Snoozed,
    Suspended,
)
from app.domain.state import DeadReason
from app.domain.step import MAIN_BRANCH, NewWait, Place, StepKind

ERROR = ErrorInfo(type="ValueError", message="no")
TIMED_OUT = ErrorInfo(type="JobTimeout", message="too long", code="JOB_TIMEOUT")
MINUTE = timedelta(minutes=1)
NAP = NewWait(name="nap", kind=StepKind.SLEEP, place=Place(MAIN_BRANCH, 0), delay=MINUTE)

# The contract's table: counted as an attempt, label of `outlast_jobs_total`, has a row in the ledger.
TABLE = {
    OutcomeKind.COMPLETED: (True, "ok", False),
    OutcomeKind.SUSPENDED: (False, None, False),
    OutcomeKind.RETRIED: (True, "failed", True),
    OutcomeKind.DEAD_LETTERED: (True, "dead", True),
    OutcomeKind.INTERRUPTED: (False, None, True),
    OutcomeKind.CANCELLED: (False, None, True),
    OutcomeKind.CRASHED: (False, None, True),
    OutcomeKind.LEASE_LOST: (False, None, True),
    OutcomeKind.HELD: (False, None, True),
}


@pytest.mark.parametrize("kind", OutcomeKind)
def test_the_rule_of_an_outcome_is_the_contracts(kind: OutcomeKind) -> None:
    rule = RULE_OF[kind]
    assert (rule.counted, rule.label, rule.ledger) == TABLE[kind]
    assert rule.when


def test_every_outcome_has_one_rule() -> None:
    assert [rule.kind for rule in OUTCOME_RULES] == list(OutcomeKind)


def test_a_deploy_an_outage_or_a_crash_wave_never_moves_the_failure_ratio() -> None:
    labelled = {kind for kind in OutcomeKind if RULE_OF[kind].label is not None}
    assert labelled == {OutcomeKind.COMPLETED, OutcomeKind.RETRIED, OutcomeKind.DEAD_LETTERED}


def test_every_outcome_a_worker_settles_has_a_kind_and_no_other() -> None:
    assert set(KIND_OF) == set(get_args(Outcome))
    assert set(OutcomeKind) - set(KIND_OF.values()) == {OutcomeKind.CRASHED, OutcomeKind.LEASE_LOST}


@pytest.mark.parametrize(
    ("outcome", "cause", "error"),
    [
        (Completed(result="1"), "returned", None),
        (Completed(late=True), "late", None),
        (Snoozed(delay=MINUTE), "suspended", None),
        (Suspended(waits=(NAP,)), "suspended", None),
        (Retried(error=ERROR, delay=MINUTE), "error", ERROR),
        (Retried(error=TIMED_OUT, delay=MINUTE), "timeout", TIMED_OUT),
        (DeadLettered(error=ERROR, reason=DeadReason.TERMINAL), "error", ERROR),
        (DeadLettered(error=ERROR, reason=DeadReason.ATTEMPTS_EXHAUSTED), "error", ERROR),
        (DeadLettered(error=TIMED_OUT, reason=DeadReason.ATTEMPTS_EXHAUSTED), "timeout", TIMED_OUT),
        (DeadLettered(error=TIMED_OUT, reason=DeadReason.DEADLINE), "deadline", TIMED_OUT),
        (Interrupted(cause="drain"), "drain", None),
        (Interrupted(cause="drain", error=ERROR), "drain", ERROR),
        (Cancelled(reason="not needed"), "caller", None),
        (Cancelled(reason="not needed", error=ERROR), "caller", ERROR),
        (Held(reason="step 3"), "held", None),
        (Held(reason="step 3", error=ERROR), "held", ERROR),
    ],
)
def test_an_outcome_is_recorded_with_its_cause_and_error(outcome: Outcome, cause: str, error: ErrorInfo | None) -> None:
    assert (cause_of(outcome), error_of(outcome)) == (cause, error)
