from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import JobDuplicate, JobNotFound, JobStateConflict
from app.domain.job import Counters
from app.domain.outcome import Completed, DeadLettered, Held, Interrupted, OutcomeKind, Retried
from app.domain.state import DeadReason, State
from tests.conformance.endings import Ending, cancelled_before_start, completed, dead_lettered, every_retryable_ending
from tests.support.drivers import ERROR, DriverEnv, new_id

HOUR = timedelta(hours=1)


@every_retryable_ending
async def test_an_ended_job_is_ready_again(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {})
    before = await env.describe(job_id)
    rows = await env.ledger(job_id)
    await env.driver.retry(job_id)
    view = await env.describe(job_id)
    assert (view.state, view.state_reason, view.run_at) == (State.READY, None, None)
    assert (view.started_at, view.finished_at) == (None, None)
    assert (view.error, view.last_outcome) == (rows[-1].error if rows else None, before.last_outcome)
    assert view.counters == Counters(claim_no=before.counters.claim_no, interrupts=before.counters.interrupts)
    assert await env.ledger(job_id) == rows


async def test_both_budgets_start_anew_and_the_claim_number_goes_on(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.close_attempt(token, Interrupted(cause="drain"))
    token = (await env.claim_one(worker)).token
    await env.vanish()
    await env.driver.reap()
    worker = await env.register()
    token = (await env.claim_one(worker)).token
    await env.close_attempt(token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    assert (await env.describe(token.job_id)).counters == Counters(attempt=1, claim_no=3, crashes=1, interrupts=1)
    await env.driver.retry(token.job_id)
    held = await env.claim_one(worker)
    assert held.counters == Counters(attempt=1, claim_no=4, interrupts=1)
    await env.close_attempt(held.token, Completed())
    assert [row.outcome for row in await env.ledger(token.job_id)] == [
        OutcomeKind.INTERRUPTED,
        OutcomeKind.CRASHED,
        OutcomeKind.DEAD_LETTERED,
        OutcomeKind.COMPLETED,
    ]


async def test_retried_work_goes_behind_what_is_ready(env: DriverEnv) -> None:
    dead = await dead_lettered(env, {})
    fresh = await env.enqueue()
    await env.driver.retry(dead)
    claimed = await env.claim(await env.register())
    assert [held.token.job_id for held in claimed] == [fresh, dead]


@pytest.mark.parametrize("limit", ["max_queue_time", "deadline"])
async def test_limits_of_the_first_life_do_not_end_the_second(env: DriverEnv, limit: str) -> None:
    limits: dict[str, Any] = {limit: HOUR}
    job_id = await env.enqueue(**limits)
    await env.advance(2 * HOUR)
    await env.driver.expire()
    await env.driver.retry(job_id)
    await env.advance(2 * HOUR)
    assert await env.driver.expire() == ()
    assert (await env.claim_one(await env.register())).deadline_in is None


async def test_a_retry_forgets_the_time_the_job_was_to_run_at(env: DriverEnv) -> None:
    job_id = await cancelled_before_start(env, {"delay": HOUR})
    await env.driver.retry(job_id)
    view = await env.describe(job_id)
    assert (view.state, view.run_at) == (State.READY, None)
    assert await env.driver.promote() == 0


# --- keys


@every_retryable_ending
async def test_a_retry_takes_the_key_again(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {"key": "k", "fingerprint": 7})
    await env.driver.retry(job_id)
    answer = await env.enqueue_again(key="k", fingerprint=7)
    assert (answer.id, answer.deduped) == (job_id, True)
    await env.close_attempt((await env.claim_one(await env.register())).token, Completed())
    assert (await env.enqueue_again(key="k", fingerprint=8)).deduped is False


@every_retryable_ending
async def test_a_retry_whose_key_is_taken_is_refused_and_changes_nothing(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {"key": "k"})
    live = await env.enqueue(key="k")
    before = await env.describe(job_id)
    with pytest.raises(JobDuplicate) as refused:
        await env.driver.retry(job_id)
    assert str(refused.value.details["existing_id"]) == str(live)
    assert await env.describe(job_id) == before
    assert (await env.enqueue_again(key="k")).id == live


async def test_a_key_kept_by_another_ended_job_refuses_the_retry_until_its_window_is_over(env: DriverEnv) -> None:
    dead = await dead_lettered(env, {"key": "k"})
    other = await completed(env, {"key": "k", "dedupe_for": HOUR})
    with pytest.raises(JobDuplicate) as refused:
        await env.driver.retry(dead)
    assert str(refused.value.details["existing_id"]) == str(other)
    await env.advance(HOUR)
    await env.driver.retry(dead)
    assert (await env.enqueue_again(key="k")).id == dead


async def test_a_retry_within_its_own_window_keeps_the_window(env: DriverEnv) -> None:
    enqueued_at = env.now()
    job_id = await dead_lettered(env, {"key": "k", "dedupe_for": HOUR})
    await env.driver.retry(job_id)
    assert (await env.describe(job_id)).key_expires_at == enqueued_at + HOUR
    await env.driver.cancel(job_id, reason="stop")
    assert (await env.enqueue_again(key="k")).id == job_id
    await env.advance(HOUR)
    assert (await env.enqueue_again(key="k")).deduped is False


async def test_a_retried_job_holds_its_key_past_its_window(env: DriverEnv) -> None:
    job_id = await dead_lettered(env, {"key": "k", "dedupe_for": HOUR})
    await env.driver.retry(job_id)
    await env.advance(2 * HOUR)
    assert (await env.enqueue_again(key="k")).id == job_id


# --- refusals


async def test_live_and_done_jobs_are_a_state_conflict(env: DriverEnv) -> None:
    done = await completed(env, {})
    worker = await env.register()
    held = (await env.running(worker)).token
    await env.close_attempt(held, Held(reason="does not fit"))
    retried = (await env.running(worker)).token
    await env.close_attempt(retried, Retried(error=ERROR, delay=HOUR))
    running = (await env.running(worker)).token
    ready = await env.enqueue()
    expected = {
        done: State.DONE,
        held.job_id: State.HELD,
        retried.job_id: State.DELAYED,
        running.job_id: State.RUNNING,
        ready: State.READY,
    }
    for job_id, state in expected.items():
        before = await env.describe(job_id)
        with pytest.raises(JobStateConflict) as refused:
            await env.driver.retry(job_id)
        assert refused.value.details["state"] == state
        assert await env.describe(job_id) == before


async def test_absent_and_foreign_jobs_are_not_found(env: DriverEnv) -> None:
    job_id = await dead_lettered(env, {"tenant": "acme"})
    with pytest.raises(JobNotFound):
        await env.driver.retry(new_id())
    with pytest.raises(JobNotFound):
        await env.driver.retry(job_id, tenant="other")
    assert (await env.describe(job_id)).state is State.DEAD
    await env.driver.retry(job_id, tenant="acme")
    assert (await env.describe(job_id)).state is State.READY
