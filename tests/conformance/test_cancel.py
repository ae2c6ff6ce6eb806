from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from app.domain.errors import JobNotFound
from app.domain.job import Counters, JobId
from app.domain.outcome import CancelVerdict, Completed, Held, Interrupted, OutcomeKind, Retried, Snoozed
from app.domain.state import State
from tests.conformance.endings import Ending, every_ending
from tests.support.drivers import ERROR, DriverEnv, new_id

MINUTE = timedelta(minutes=1)


async def _ready(env: DriverEnv) -> JobId:
    return await env.enqueue(key="k")


async def _delayed(env: DriverEnv) -> JobId:
    return await env.enqueue(key="k", delay=MINUTE)


async def _interrupted(env: DriverEnv) -> JobId:
    token = (await env.running(key="k")).token
    await env.close_attempt(token, Interrupted(cause="drain"))
    return token.job_id


async def _released(env: DriverEnv) -> JobId:
    token = (await env.running(key="k")).token
    await env.driver.release((token,), cause="test")
    return token.job_id


async def _retried(env: DriverEnv) -> JobId:
    token = (await env.running(key="k")).token
    await env.close_attempt(token, Retried(error=ERROR, delay=MINUTE))
    return token.job_id


async def _snoozed(env: DriverEnv) -> JobId:
    token = (await env.running(key="k")).token
    await env.close_attempt(token, Snoozed(delay=MINUTE))
    return token.job_id


async def _promoted(env: DriverEnv) -> JobId:
    job_id = await _retried(env)
    await env.advance(MINUTE)
    await env.driver.promote()
    return job_id


async def _held(env: DriverEnv) -> JobId:
    token = (await env.running(key="k")).token
    await env.close_attempt(token, Held(reason="does not fit"))
    return token.job_id


async def _crashed(env: DriverEnv) -> JobId:
    token = (await env.running(key="k")).token
    await env.vanish()
    await env.driver.reap()
    return token.job_id


NEVER_STARTED = (_ready, _delayed)
BEGUN = (_interrupted, _released, _retried, _snoozed, _promoted, _held, _crashed)


@pytest.mark.parametrize("bring", [pytest.param(each, id=each.__name__[1:]) for each in (*NEVER_STARTED, *BEGUN)])
async def test_a_waiting_job_is_cancelled_where_it_is(
    env: DriverEnv, bring: Callable[[DriverEnv], Awaitable[JobId]]
) -> None:
    job_id = await bring(env)
    before = await env.describe(job_id)
    rows = await env.ledger(job_id)
    expected = CancelVerdict.CANCELLED_BEFORE_START if bring in NEVER_STARTED else CancelVerdict.CANCELLED_WHILE_WAITING
    assert await env.driver.cancel(job_id, reason="not needed") is expected
    view = await env.describe(job_id)
    assert (view.state, view.state_reason, view.finished_at) == (State.CANCELLED, "not needed", env.now())
    assert (view.counters, view.error) == (before.counters, before.error)
    assert (view.started_at, view.claim) == (None, None)
    assert await env.ledger(job_id) == rows
    assert await env.claim(await env.register()) == ()
    assert (await env.enqueue_again(key="k")).deduped is False


async def test_a_running_job_is_cancelled_and_its_worker_signalled(env: DriverEnv) -> None:
    worker = await env.register(host="host-b", code_version="2.0")
    held = await env.running(worker, key="k")
    await env.advance(timedelta(seconds=5))
    assert await env.driver.cancel(held.token.job_id, reason="stop") is CancelVerdict.SIGNALLED
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.claim) == (State.CANCELLED, "stop", None)
    assert view.counters == Counters(claim_no=1)
    assert (view.last_outcome, view.error) == (OutcomeKind.CANCELLED, None)
    assert (view.started_at, view.finished_at) == (held.claimed_at, env.now())
    (row,) = await env.ledger(held.token.job_id)
    assert (row.number, row.outcome, row.cause, row.counted) == (1, OutcomeKind.CANCELLED, "operator", False)
    assert (row.worker_id, row.host, row.code_version) == (worker, "host-b", "2.0")
    assert (row.started_at, row.ended_at) == (held.claimed_at, env.now())
    assert (await env.enqueue_again(key="k")).deduped is False


@every_ending
async def test_an_ended_job_stays_as_it_is(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {})
    before = await env.describe(job_id)
    await env.advance(MINUTE)
    assert await env.driver.cancel(job_id, reason="again") is CancelVerdict.ALREADY_FINISHED
    assert await env.describe(job_id) == before


async def test_a_cancelled_delayed_job_is_never_promoted(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=MINUTE)
    await env.driver.cancel(job_id, reason="stop")
    await env.advance(2 * MINUTE)
    assert await env.driver.promote() == 0
    assert (await env.describe(job_id)).state is State.CANCELLED


async def test_a_cancelled_claim_is_not_reaped(env: DriverEnv) -> None:
    held = await env.running()
    await env.driver.cancel(held.token.job_id, reason="stop")
    await env.vanish()
    assert await env.driver.reap() == ()


async def test_absent_and_foreign_jobs_are_not_found_alike(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme")
    with pytest.raises(JobNotFound) as absent:
        await env.driver.cancel(new_id(), reason="stop", tenant="other")
    with pytest.raises(JobNotFound) as foreign:
        await env.driver.cancel(job_id, reason="stop", tenant="other")
    assert type(absent.value) is type(foreign.value)
    assert absent.value.fix == foreign.value.fix
    assert (await env.describe(job_id)).state is State.READY
    assert await env.driver.cancel(job_id, reason="stop", tenant="acme") is CancelVerdict.CANCELLED_BEFORE_START


async def test_a_key_that_moved_on_is_not_freed_by_a_late_cancel(env: DriverEnv) -> None:
    first = await env.running(key="k")
    await env.close_attempt(first.token, Completed())
    second = await env.enqueue(key="k")
    await env.driver.cancel(first.token.job_id, reason="late")
    assert (await env.enqueue_again(key="k")).id == second


async def test_cancel_and_settle_at_once_agree_on_one_end(env: DriverEnv) -> None:
    for _ in range(10):
        held = await env.running()
        verdict, answer = await asyncio.gather(
            env.driver.cancel(held.token.job_id, reason="stop"), env.settle(held.token, Completed(result="1"))
        )
        state = (await env.describe(held.token.job_id)).state
        assert (state, str(verdict), str(answer)) in {
            (State.CANCELLED, "signalled", "cancelled"),
            (State.DONE, "already_finished", "settled"),
        }
