from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outcome import Interrupted, Retried, Snoozed
from app.domain.state import State
from app.domain.step import NewWait, StepKind, StepView
from tests.conformance.runs import (
    HOUR,
    MINUTE,
    SECOND,
    a_sleep,
    a_step,
    an_event,
    at,
    die,
    emit,
    enlist,
    history,
    known,
    order,
    state_of,
    steps,
    suspend,
    suspended,
    the_step,
    waits,
)
from tests.support.drivers import ERROR, DriverEnv


@pytest.mark.parametrize("wait", [a_sleep("w", delay=HOUR), an_event("w", delay=HOUR)], ids=lambda wait: wait.kind)
async def test_a_wait_ends_when_its_time_has_come(env: DriverEnv, wait: NewWait) -> None:
    worker = await enlist(env)
    held = await suspended(env, wait, worker=worker)
    await env.advance(HOUR - timedelta(milliseconds=1))
    assert await env.driver.wake() == 0
    assert await state_of(env, held.token.job_id) is State.SUSPENDED
    await env.advance(timedelta(milliseconds=1))
    assert await env.driver.wake() == 1
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.waiting_on) == (State.READY, None, ())
    assert await waits(env, held.token.job_id) == []
    assert await env.driver.wake() == 0


async def test_its_step_has_no_value(env: DriverEnv) -> None:
    began = env.now()
    worker = await enlist(env, code_version="2.1.0")
    held = await suspended(env, an_event("w", 3, place=at(3, "1.0"), delay=HOUR), worker=worker)
    await env.advance(2 * HOUR)
    await env.driver.wake()
    step = await the_step(env, held.token.job_id)
    assert step == StepView(
        seq=step.seq,
        name="w",
        kind=StepKind.EVENT,
        place=at(3, "1.0"),
        value=None,
        claim_no=1,
        code_version="2.1.0",
        started_at=began,
        ended_at=env.now(),
        has_event=False,
        child_id=None,
    )


async def test_a_step_of_a_wait_comes_after_those_before_it(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await env.driver.record_step(held.token, a_step("a", 0))
    await suspend(env, held, a_sleep("b", 1))
    await env.advance(HOUR)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await env.driver.record_step(held.token, a_step("c", 2))
    recorded = (await history(env, held.token.job_id)).steps
    assert [(step.name, step.claim_no) for step in recorded] == [("a", 1), ("b", 1), ("c", 2)]


async def test_woken_work_comes_before_new_work_of_its_priority(env: DriverEnv) -> None:
    worker = await enlist(env)
    first = await suspended(env, a_sleep(delay=MINUTE), worker=worker)
    urgent_sleeper = await suspended(env, a_sleep(), worker=worker, priority=0)
    new = await env.enqueue()
    urgent = await env.enqueue(priority=0)
    await env.advance(HOUR)
    assert await env.driver.wake() == 2
    assert await order(env, worker) == [urgent_sleeper.token.job_id, urgent, first.token.job_id, new]


async def test_the_longest_due_wakes_first(env: DriverEnv) -> None:
    worker = await enlist(env)
    delays = [3 * MINUTE, MINUTE, 2 * MINUTE]
    held = [await suspended(env, a_sleep(delay=delay), worker=worker) for delay in delays]
    await env.advance(HOUR)
    assert await env.driver.wake(batch=2) == 2
    assert await order(env, await enlist(env)) == [held[1].token.job_id, held[2].token.job_id]
    assert await env.driver.wake(batch=2) == 1
    assert await env.driver.wake(batch=2) == 0


async def test_one_of_two_waits_is_enough(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep("a", 0), a_sleep("b", 1, delay=MINUTE), worker=worker)
    await env.advance(MINUTE)
    assert await env.driver.wake() == 1
    assert await state_of(env, held.token.job_id) is State.READY
    assert (await steps(env, held.token.job_id), await waits(env, held.token.job_id)) == (["b"], ["a"])
    held = await env.claim_one(worker)
    assert await suspend(env, held, known(a_sleep("a", 0))) is State.SUSPENDED
    await env.advance(HOUR)
    assert await env.driver.wake() == 1
    assert await steps(env, held.token.job_id) == ["b", "a"]


async def test_two_waits_that_end_together_are_two(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep("a", 0), a_sleep("b", 1), worker=worker)
    await env.advance(HOUR)
    assert await env.driver.wake() == 2
    assert sorted(await steps(env, held.token.job_id)) == ["a", "b"]
    assert await order(env, await enlist(env)) == [held.token.job_id]


async def test_a_wait_of_a_job_that_runs_only_has_its_step_recorded(env: DriverEnv) -> None:
    worker = await enlist(env)
    await suspended(env, a_sleep("a", 0), a_sleep("b", 1, delay=MINUTE), worker=worker)
    await env.advance(MINUTE)
    await env.driver.wake()
    held = await env.claim_one(worker)
    before = await env.describe(held.token.job_id)
    await env.advance(HOUR)
    assert await env.driver.wake() == 1
    now = await env.describe(held.token.job_id)
    assert (now.state, now.counters, now.claim is not None) == (State.RUNNING, before.counters, True)
    recorded = (await history(env, held.token.job_id)).steps
    assert [(step.name, step.claim_no) for step in recorded] == [("b", 1), ("a", 2)]
    assert await suspend(env, held, known(a_sleep("a", 0))) is State.READY


@pytest.mark.parametrize(
    "outcome",
    [Interrupted(cause="drain"), Snoozed(delay=10 * HOUR), Retried(error=ERROR, delay=10 * HOUR)],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_wait_of_a_job_that_is_elsewhere_only_has_its_step_recorded(
    env: DriverEnv, outcome: Interrupted | Snoozed | Retried
) -> None:
    worker = await enlist(env)
    await suspended(env, a_sleep("a", 0), a_sleep("b", 1, delay=SECOND), worker=worker)
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await env.close_attempt(held.token, outcome)
    before = await env.describe(held.token.job_id)
    await env.advance(HOUR)
    assert await env.driver.wake() == 1
    assert await env.describe(held.token.job_id) == before
    assert await steps(env, held.token.job_id) == ["b", "a"]


async def test_a_wait_of_a_dead_job_only_has_its_step_recorded(env: DriverEnv) -> None:
    worker = await enlist(env)
    await suspended(env, a_sleep("a", 0), a_sleep("b", 1, delay=SECOND), worker=worker)
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await die(env, held, has_waits=True)
    await env.advance(HOUR)
    wake_in = (await env.driver.due()).wake_in
    assert wake_in is not None
    assert await env.driver.wake() == 1
    assert await state_of(env, held.token.job_id) is State.DEAD
    assert await steps(env, held.token.job_id) == ["b", "a"]


async def test_a_time_that_has_passed_is_over_though_the_event_comes_then(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, an_event(delay=MINUTE), worker=worker)
    await env.advance(MINUTE)
    await env.driver.wake()
    assert (await emit(env)).matched == 0
    assert not (await the_step(env, held.token.job_id)).has_event


async def test_an_event_that_comes_before_the_look_still_counts(env: DriverEnv) -> None:
    held = await suspended(env, an_event(delay=MINUTE))
    await env.advance(HOUR)
    assert (await emit(env, "1")).matched == 1
    assert await env.driver.wake() == 0
    step = await the_step(env, held.token.job_id)
    assert (step.has_event, step.value) == (True, "1")


# --- due


async def test_due_tells_the_time_to_the_next_end(env: DriverEnv) -> None:
    worker = await enlist(env)
    assert (await env.driver.due()).wake_in is None
    await suspended(env, an_event(), worker=worker)
    assert (await env.driver.due()).wake_in is None
    await suspended(env, a_sleep(delay=HOUR), worker=worker)
    assert (await env.driver.due()).wake_in == HOUR
    await suspended(env, an_event(key="other", delay=MINUTE), worker=worker)
    assert (await env.driver.due()).wake_in == MINUTE
    await env.advance(SECOND)
    assert (await env.driver.due()).wake_in == MINUTE - SECOND
    await env.advance(MINUTE)
    assert (await env.driver.due()).wake_in == -SECOND
    await env.driver.wake()
    assert (await env.driver.due()).wake_in == HOUR - MINUTE - SECOND
    await env.advance(HOUR)
    await env.driver.wake()
    assert (await env.driver.due()).wake_in is None


async def test_a_cancel_takes_the_time_along(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep())
    await env.driver.cancel(held.token.job_id, reason="stop")
    assert (await env.driver.due()).wake_in is None


async def test_a_wake_leaves_other_waits_and_delayed_jobs_alone(env: DriverEnv) -> None:
    worker = await enlist(env)
    waiting = await suspended(env, an_event(), worker=worker)
    delayed = await env.enqueue(delay=MINUTE)
    await env.advance(HOUR)
    assert await env.driver.wake() == 0
    assert await state_of(env, waiting.token.job_id) is State.SUSPENDED
    assert await state_of(env, delayed) is State.DELAYED
