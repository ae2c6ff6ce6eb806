from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import ClaimedJob, Counters, WorkerId
from app.domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Held,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
)
from app.domain.state import DeadReason, State
from tests.support.drivers import ERROR, DriverEnv

MINUTE = timedelta(minutes=1)
TIMED_OUT = ErrorInfo(type="JobTimeout", message="too long", code="JOB_TIMEOUT")


async def _once_failed(env: DriverEnv, worker: WorkerId) -> ClaimedJob:
    """A job in its second attempt: one counted failure and one claim that was interrupted behind it."""
    token = (await env.running(worker)).token
    await env.close_attempt(token, Retried(error=ErrorInfo(type="OldError", message="first"), delay=timedelta()))
    await env.driver.promote()
    cut = ErrorInfo(type="CutError", message="second")
    await env.close_attempt((await env.claim_one(worker)).token, Interrupted(cause="drain", error=cut))
    held = await env.claim_one(worker)
    assert held.counters == Counters(attempt=2, claim_no=3, interrupts=1)
    return held


# --- where each outcome leads


async def test_completed_is_done_with_its_result_and_without_an_error(env: DriverEnv) -> None:
    held = await _once_failed(env, await env.register())
    await env.advance(timedelta(seconds=2))
    await env.close_attempt(held.token, Completed(result='{"sent": true}'))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.result, view.late) == (State.DONE, None, '{"sent": true}', False)
    assert view.counters == Counters(attempt=2, claim_no=3, interrupts=1)
    assert (view.last_outcome, view.error, view.claim) == (OutcomeKind.COMPLETED, None, None)
    assert (view.started_at, view.finished_at) == (held.claimed_at, env.now())


async def test_completed_without_a_result(env: DriverEnv) -> None:
    held = await env.running()
    await env.close_attempt(held.token, Completed())
    assert (await env.describe(held.token.job_id)).result is None


async def test_completed_late_says_so(env: DriverEnv) -> None:
    held = await env.running()
    await env.close_attempt(held.token, Completed(result="1", late=True))
    assert (await env.describe(held.token.job_id)).late is True


RESULTS = {
    "null": "null",
    "empty": '""',
    "unicode": '"\\u00e9 \U0001f600"',
    "float": "1.5e300",
    "negative_zero": "-0.0",
    "long_int": "1" + "0" * 400,
    "cases": '{"a":1,"A":2}',
    "spaces": "[ 1 , 2 ]",
    "megabyte": '"' + "x" * 1_000_000 + '"',
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
async def test_results_are_kept_byte_for_byte(env: DriverEnv, result: str) -> None:
    held = await env.running()
    await env.close_attempt(held.token, Completed(result=result))
    assert (await env.describe(held.token.job_id)).result == result


async def test_retried_waits_and_counts(env: DriverEnv) -> None:
    held = await _once_failed(env, await env.register())
    await env.close_attempt(held.token, Retried(error=ERROR, delay=MINUTE))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.run_at) == (State.DELAYED, "retry", env.now() + MINUTE)
    assert view.counters == Counters(attempt=2, claim_no=3, interrupts=1)
    assert (view.last_outcome, view.error) == (OutcomeKind.RETRIED, ERROR)
    assert (view.started_at, view.finished_at, view.claim) == (None, None, None)


@pytest.mark.parametrize("reason", [DeadReason.TERMINAL, DeadReason.ATTEMPTS_EXHAUSTED, DeadReason.DEADLINE])
async def test_dead_lettered_is_dead_for_its_reason(env: DriverEnv, reason: DeadReason) -> None:
    held = await _once_failed(env, await env.register())
    await env.close_attempt(held.token, DeadLettered(error=ERROR, reason=reason))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.error) == (State.DEAD, reason, ERROR)
    assert view.counters == Counters(attempt=2, claim_no=3, interrupts=1)
    assert view.last_outcome is OutcomeKind.DEAD_LETTERED
    assert (view.started_at, view.finished_at) == (held.claimed_at, env.now())


async def test_interrupted_is_ready_at_once_and_uncounted(env: DriverEnv) -> None:
    held = await _once_failed(env, await env.register())
    await env.close_attempt(held.token, Interrupted(cause="drain", error=ERROR))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason) == (State.READY, None)
    assert view.counters == Counters(attempt=1, claim_no=3, interrupts=2)
    assert (view.last_outcome, view.error) == (OutcomeKind.INTERRUPTED, ERROR)


async def test_interrupted_with_a_time_keeps_it(env: DriverEnv) -> None:
    held = await env.running()
    await env.close_attempt(held.token, Interrupted(cause="drain", delay=MINUTE))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.run_at) == (State.DELAYED, "interrupted", env.now() + MINUTE)
    assert view.counters == Counters(claim_no=1, interrupts=1)


async def test_suspended_waits_uncounted(env: DriverEnv) -> None:
    held = await _once_failed(env, await env.register())
    await env.close_attempt(held.token, Snoozed(delay=MINUTE))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.run_at) == (State.DELAYED, "snooze", env.now() + MINUTE)
    assert view.counters == Counters(attempt=1, claim_no=3, interrupts=1)
    assert view.last_outcome is OutcomeKind.SUSPENDED


async def test_cancelled_by_the_caller_is_final_and_uncounted(env: DriverEnv) -> None:
    held = await _once_failed(env, await env.register())
    await env.close_attempt(held.token, Cancelled(reason="not needed", error=ERROR))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason) == (State.CANCELLED, "not needed")
    assert view.counters == Counters(attempt=1, claim_no=3, interrupts=1)
    assert (view.last_outcome, view.error) == (OutcomeKind.CANCELLED, ERROR)


async def test_held_waits_for_an_operator_uncounted(env: DriverEnv) -> None:
    held = await env.running()
    await env.close_attempt(held.token, Held(reason="payload does not fit", error=ERROR))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.error) == (State.HELD, "payload does not fit", ERROR)
    assert view.counters == Counters(claim_no=1)
    assert await env.claim(await env.register()) == ()


# --- what the ledger says


@pytest.mark.parametrize(
    ("outcome", "kind", "cause", "counted", "error"),
    [
        (Retried(error=ERROR, delay=MINUTE), OutcomeKind.RETRIED, "error", True, ERROR),
        (Retried(error=TIMED_OUT, delay=MINUTE), OutcomeKind.RETRIED, "timeout", True, TIMED_OUT),
        (
            DeadLettered(error=ERROR, reason=DeadReason.ATTEMPTS_EXHAUSTED),
            OutcomeKind.DEAD_LETTERED,
            "error",
            True,
            ERROR,
        ),
        (
            DeadLettered(error=TIMED_OUT, reason=DeadReason.ATTEMPTS_EXHAUSTED),
            OutcomeKind.DEAD_LETTERED,
            "timeout",
            True,
            TIMED_OUT,
        ),
        (
            DeadLettered(error=TIMED_OUT, reason=DeadReason.DEADLINE),
            OutcomeKind.DEAD_LETTERED,
            "deadline",
            True,
            TIMED_OUT,
        ),
        (Interrupted(cause="drain"), OutcomeKind.INTERRUPTED, "drain", False, None),
        (Interrupted(cause="drain", error=ERROR, delay=MINUTE), OutcomeKind.INTERRUPTED, "drain", False, ERROR),
        (Cancelled(reason="not needed", error=ERROR), OutcomeKind.CANCELLED, "caller", False, ERROR),
        (Held(reason="does not fit", error=ERROR), OutcomeKind.HELD, "held", False, ERROR),
    ],
)
async def test_an_ended_attempt_has_one_row(
    env: DriverEnv, outcome: Outcome, kind: OutcomeKind, cause: str, counted: bool, error: ErrorInfo | None
) -> None:
    worker = await env.register(host="host-b", code_version="2.1.0")
    held = await env.running(worker)
    await env.advance(timedelta(seconds=7))
    await env.close_attempt(held.token, outcome)
    (row,) = await env.ledger(held.token.job_id)
    assert (row.number, row.outcome, row.cause, row.counted, row.error) == (1, kind, cause, counted, error)
    assert (row.worker_id, row.host, row.code_version) == (worker, "host-b", "2.1.0")
    assert (row.started_at, row.ended_at) == (held.claimed_at, env.now())


async def test_a_suspension_has_no_row(env: DriverEnv) -> None:
    held = await env.running()
    await env.close_attempt(held.token, Snoozed(delay=MINUTE))
    assert await env.ledger(held.token.job_id) == ()


@pytest.mark.parametrize(
    "outcome",
    [
        Retried(error=ERROR, delay=MINUTE),
        Interrupted(cause="drain"),
        Held(reason="does not fit"),
        Held(reason="a", version="b"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_row_names_the_step_that_was_reached(env: DriverEnv, outcome: Outcome) -> None:
    held = await env.running()
    (answer,) = await env.driver.settle([Settlement(held.token, outcome, step="charge")])
    assert answer is SettleAnswer.SETTLED
    (row,) = await env.ledger(held.token.job_id)
    assert row.step == "charge"
