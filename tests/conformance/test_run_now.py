from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from app.domain.audit import Action
from app.domain.edit import RunNowVerdict
from app.domain.errors import JobNotFound, JobStateConflict
from app.domain.job import JobId
from app.domain.outcome import Held, Interrupted, Retried, Snoozed
from app.domain.state import State
from app.domain.step import StepKind
from tests.conformance.endings import Ending, every_ending
from tests.conformance.runs import HOUR, a_call, a_child, a_sleep, an_event, emit, enlist, suspend, suspended
from tests.support.audit import an_entry, details_of, outcomes, rows_of
from tests.support.drivers import ERROR, DriverEnv, new_id

MINUTE = timedelta(minutes=1)


async def _scheduled(env: DriverEnv) -> JobId:
    return await env.enqueue(delay=HOUR, max_queue_time=MINUTE)


async def _retried(env: DriverEnv) -> JobId:
    token = (await env.running()).token
    await env.close_attempt(token, Retried(error=ERROR, delay=HOUR))
    return token.job_id


async def _snoozed(env: DriverEnv) -> JobId:
    token = (await env.running()).token
    await env.close_attempt(token, Snoozed(delay=HOUR))
    return token.job_id


async def _interrupted(env: DriverEnv) -> JobId:
    token = (await env.running()).token
    await env.close_attempt(token, Interrupted(cause="drain", delay=HOUR))
    return token.job_id


@pytest.mark.parametrize("bring", [_scheduled, _retried, _snoozed, _interrupted])
async def test_a_delayed_job_is_ready_at_once_as_it_was(
    env: DriverEnv, bring: Callable[[DriverEnv], Awaitable[JobId]]
) -> None:
    job_id = await bring(env)
    before = await env.describe(job_id)
    assert before.state is State.DELAYED
    audit = an_entry(Action.JOB_RUN_NOW, job_id)
    assert await env.driver.run_now(job_id, audit=audit) is RunNowVerdict.MADE_READY
    view = await env.describe(job_id)
    assert (view.state, view.counters, view.error) == (State.READY, before.counters, before.error)
    assert await env.driver.run_now(job_id, audit=an_entry(Action.JOB_RUN_NOW, job_id)) is RunNowVerdict.ALREADY_READY
    assert await outcomes(env.driver, job_id) == [("job.run_now", "unchanged"), ("job.run_now", "made_ready")]
    claimed = await env.claim_one(await env.register())
    assert claimed.token.job_id == job_id
    assert claimed.counters == before.counters.claimed()
    assert await env.driver.promote() == 0
    assert await env.driver.run_now(job_id) is RunNowVerdict.ALREADY_RUNNING


async def test_a_job_run_now_shows_the_time_it_was_let_go_at(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=HOUR)
    await env.advance(MINUTE)
    await env.driver.run_now(job_id)
    assert (await env.describe(job_id)).run_at == env.now()


async def test_a_job_keeps_the_place_it_was_to_have(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.close_attempt(token, Snoozed(delay=HOUR))  # resumed work goes before new
    first = await env.enqueue()
    await env.driver.run_now(token.job_id)
    assert [job.token.job_id for job in await env.claim(worker)] == [token.job_id, first]


async def test_its_time_limits_stay(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=HOUR, max_queue_time=2 * HOUR)
    await env.driver.run_now(job_id)
    await env.advance(3 * HOUR)
    assert [ended.job_id for ended in await env.driver.expire()] == [job_id]


async def test_a_sleep_ends_as_if_its_time_had_come(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep(), worker=worker)
    job_id = held.token.job_id
    await env.advance(MINUTE)
    audit = an_entry(Action.JOB_RUN_NOW, job_id)
    assert await env.driver.run_now(job_id, audit=audit) is RunNowVerdict.SLEEP_ENDED
    assert (await env.describe(job_id)).state is State.READY
    (step,) = (await env.driver.history(job_id, held.run_id)).steps
    assert (step.name, step.kind, step.value, step.ended_at) == ("nap", StepKind.SLEEP, None, env.now())
    assert (await env.claim_one(worker)).token.job_id == job_id
    assert await outcomes(env.driver, job_id) == [("job.run_now", "sleep_ended")]


async def test_only_the_sleeps_of_a_run_end(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep(), a_sleep("rest", 1, delay=2 * HOUR), an_event("approval", 2, delay=HOUR))
    await env.driver.run_now(held.token.job_id)
    history = await env.driver.history(held.token.job_id, held.run_id)
    assert sorted(step.name for step in history.steps) == ["nap", "rest"]
    assert [wait.name for wait in history.waits] == ["approval"]
    assert (await env.describe(held.token.job_id)).state is State.READY


async def test_a_sleep_beside_which_a_run_goes_on_is_left_alone(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep(), an_event("approval", 1))
    await emit(env)
    assert await env.driver.run_now(held.token.job_id) is RunNowVerdict.ALREADY_READY
    history = await env.driver.history(held.token.job_id, held.run_id)
    assert ([step.name for step in history.steps], [wait.name for wait in history.waits]) == (["approval"], ["nap"])
    assert history.waits[0].due_at == env.now() + HOUR


async def test_a_run_that_sleeps_not_is_left_alone(env: DriverEnv) -> None:
    worker = await enlist(env)
    waiting = (await suspended(env, an_event(delay=HOUR), worker=worker)).token.job_id
    parent = await env.running(worker)
    calling = parent.token.job_id
    assert await suspend(env, parent, a_call(a_child(parent), number=0)) is State.SUSPENDED
    for job_id in (waiting, calling):
        with pytest.raises(JobStateConflict) as refused:
            await env.driver.run_now(job_id, audit=an_entry(Action.JOB_RUN_NOW, job_id))
        assert refused.value.details["state"] == State.SUSPENDED
        assert await rows_of(env.driver, job_id) == []
        assert (await env.describe(job_id)).state is State.SUSPENDED


@every_ending
async def test_an_ended_job_is_refused(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {})
    before = await env.describe(job_id)
    with pytest.raises(JobStateConflict) as refused:
        await env.driver.run_now(job_id)
    assert refused.value.details["state"] == before.state
    assert await env.describe(job_id) == before


async def test_a_held_job_is_refused(env: DriverEnv) -> None:
    token = (await env.running()).token
    await env.close_attempt(token, Held(reason="does not fit"))
    with pytest.raises(JobStateConflict) as refused:
        await env.driver.run_now(token.job_id)
    assert refused.value.details["state"] == State.HELD


async def test_absent_and_foreign_jobs_are_not_found_alike(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme", delay=HOUR)
    for wanted in (new_id(), job_id):
        with pytest.raises(JobNotFound):
            await env.driver.run_now(wanted, tenant="other", audit=an_entry(Action.JOB_RUN_NOW, wanted))
    assert (await env.describe(job_id)).state is State.DELAYED
    await env.driver.run_now(job_id, tenant="acme", audit=an_entry(Action.JOB_RUN_NOW, job_id))
    (row,) = await rows_of(env.driver, job_id)
    assert (row.tenant, row.actor, row.reason, row.at) == ("acme", "alice", "a look", env.now())
    assert details_of(row) == {"verdict": "made_ready"}
