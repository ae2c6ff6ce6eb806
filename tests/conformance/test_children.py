from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from app.domain.job import ClaimedJob, Counters
from app.domain.outcome import Cancelled, Completed, Retried
from app.domain.state import State
from app.domain.step import StepKind, StepView, WaitView
from tests.conformance.runs import (
    CHILD,
    HOUR,
    MINUTE,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    at,
    called,
    claim_child,
    die,
    enlist,
    known,
    order,
    settle,
    state_of,
    steps,
    suspend,
    the_step,
    the_wait,
    waits,
)
from tests.support.drivers import ERROR, DriverEnv

# --- a call enqueues its child


async def test_a_child_is_enqueued_with_the_suspension(env: DriverEnv) -> None:
    held = await env.running(await enlist(env), tenant="acme")
    child = a_child(held, payload='{"n":  1}', queue="other", priority=2, tenant="acme", delay=HOUR)
    assert await suspend(env, held, a_call(child, place=at(3, "1.0"))) is State.SUSPENDED
    view = await env.describe(child.id)
    assert (view.state, view.payload, view.queue, view.priority) == (State.DELAYED, '{"n":  1}', "other", 2)
    assert (view.parent_id, view.counters, view.created_at) == (held.token.job_id, Counters(), env.now())
    assert await the_wait(env, held.token.job_id) == WaitView(
        name="call",
        kind=StepKind.CALL,
        place=at(3, "1.0"),
        began_at=env.now(),
        code_version="1.0.0",
        child_id=child.id,
    )
    run = await env.driver.run(held.token.job_id)
    assert run is not None
    assert run.children == (child.id,)


async def test_a_child_that_runs_leaves_its_parent_waiting(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await settle(env, child, Retried(error=ERROR, delay=MINUTE))
    assert await state_of(env, parent.token.job_id) is State.SUSPENDED
    await env.advance(MINUTE)
    await env.driver.promote()
    child = await env.claim_one(worker, names=(CHILD,))
    assert await state_of(env, parent.token.job_id) is State.SUSPENDED
    assert not (await the_wait(env, parent.token.job_id)).has_failed


async def test_children_of_a_run_are_shown_oldest_first(env: DriverEnv) -> None:
    held = await env.running(await enlist(env))
    linked = [a_child(held) for _ in range(3)]
    await env.driver.enqueue_many(linked[::-1])
    await env.enqueue(parent_id=linked[0].id)
    run = await env.driver.run(held.token.job_id)
    assert run is not None
    assert run.children == tuple(child.id for child in linked)


async def test_at_most_a_hundred_children_are_shown(env: DriverEnv) -> None:
    held = await env.running(await enlist(env))
    linked = [a_child(held) for _ in range(101)]
    await env.driver.enqueue_many(linked)
    run = await env.driver.run(held.token.job_id)
    assert run is not None
    assert run.children == tuple(child.id for child in linked[:100])


# --- its end wakes the parent


@pytest.mark.parametrize("result", ['{"ok":  true}', None], ids=["value", "nothing"])
async def test_a_child_s_result_is_the_step_s_value(env: DriverEnv, result: str | None) -> None:
    began = env.now()
    parent, child = await called(env, await enlist(env, code_version="2.1.0"))
    new = await env.enqueue()
    await env.advance(MINUTE)
    await settle(env, child, Completed(result=result))
    view = await env.describe(parent.token.job_id)
    assert (view.state, view.state_reason) == (State.READY, None)
    step = await the_step(env, parent.token.job_id)
    assert step == StepView(
        seq=step.seq,
        name="call",
        kind=StepKind.CALL,
        place=at(0),
        value=result,
        claim_no=1,
        code_version="2.1.0",
        started_at=began,
        ended_at=env.now(),
        has_event=False,
        child_id=child.token.job_id,
    )
    assert await waits(env, parent.token.job_id) == []
    assert await order(env, await enlist(env)) == [parent.token.job_id, new]


async def fail_terminally(env: DriverEnv, child: ClaimedJob) -> None:
    await die(env, child)


async def cancel_itself(env: DriverEnv, child: ClaimedJob) -> None:
    await settle(env, child, Cancelled(reason="not needed", error=ERROR))


async def cancel_from_outside(env: DriverEnv, child: ClaimedJob) -> None:
    await env.driver.cancel(child.token.job_id, reason="stop")


async def cancel_while_it_waits(env: DriverEnv, child: ClaimedJob) -> None:
    await suspend(env, child, a_sleep())
    await env.driver.cancel(child.token.job_id, reason="stop")


async def crash_too_often(env: DriverEnv, child: ClaimedJob) -> None:
    assert await env.driver.isolate(child.token)
    await env.vanish(lease=30 * 24 * HOUR)
    assert [one.is_dead for one in await env.driver.reap()] == [True]


async def pass_its_deadline(env: DriverEnv, child: ClaimedJob) -> None:
    await settle(env, child, Retried(error=ERROR, delay=10 * HOUR))
    await env.advance(HOUR)
    assert len(await env.driver.expire()) == 1


Failure: TypeAlias = Callable[[DriverEnv, ClaimedJob], Awaitable[None]]

FAILURES: dict[Failure, tuple[State, str | None]] = {
    fail_terminally: (State.DEAD, "ORDER_UNKNOWN"),
    cancel_itself: (State.CANCELLED, "ORDER_UNKNOWN"),
    cancel_from_outside: (State.CANCELLED, None),
    cancel_while_it_waits: (State.CANCELLED, None),
    crash_too_often: (State.DEAD, "CRASHED_TOO_OFTEN"),
    pass_its_deadline: (State.DEAD, "ORDER_UNKNOWN"),
}
every_failure = pytest.mark.parametrize("failure", [pytest.param(way, id=way.__name__) for way in FAILURES])


@every_failure
async def test_a_child_without_a_result_wakes_its_parent_and_shows_why(env: DriverEnv, failure: Failure) -> None:
    parent, child = await called(env, max_crashes=1, deadline=HOUR)
    await failure(env, child)
    assert await state_of(env, parent.token.job_id) is State.READY
    assert await steps(env, parent.token.job_id) == []
    wait = await the_wait(env, parent.token.job_id)
    assert wait.has_failed
    assert (wait.child_id, wait.is_child_gone) == (child.token.job_id, False)
    state, code = FAILURES[failure]
    assert (wait.child_state, wait.child_error_code) == (state, code)
    if code == "ORDER_UNKNOWN":
        assert (wait.child_error_type, wait.child_error_message) == (ERROR.type, ERROR.message)


async def test_a_child_that_never_started_in_time_says_so(env: DriverEnv) -> None:
    held = await env.running(await enlist(env))
    child = a_child(held, max_queue_time=MINUTE)
    await suspend(env, held, a_call(child))
    await env.advance(MINUTE)
    assert len(await env.driver.expire()) == 1
    assert await state_of(env, held.token.job_id) is State.READY
    wait = await the_wait(env, held.token.job_id)
    assert (wait.child_state, wait.child_error_code) == (State.DEAD, "JOB_EXPIRED")


async def test_a_child_s_end_only_records_the_step_of_a_parent_that_runs(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    (held, running_child) = sorted(
        await env.claim(worker, names=(CHILD, "demo.job")), key=lambda one: one.parent_id is not None
    )
    await settle(env, running_child, Completed(result="1"))
    assert await state_of(env, held.token.job_id) is State.RUNNING
    assert await steps(env, held.token.job_id) == ["nap", "call"]
    assert await suspend(env, held, known(a_call(child))) is State.READY


async def test_a_child_s_end_only_records_the_step_of_a_dead_parent(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker, deadline=MINUTE)
    child = a_child(held)
    await suspend(env, held, a_call(child))
    await env.advance(MINUTE)
    await env.driver.expire()
    assert await state_of(env, child.id) is State.READY
    await settle(env, await claim_child(env, worker, child.id), Completed(result="1"))
    assert await state_of(env, held.token.job_id) is State.DEAD
    assert (await the_step(env, held.token.job_id)).value == "1"


async def test_a_grandchild_wakes_its_own_parent_alone(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    grandchild = a_child(child)
    await suspend(env, child, a_call(grandchild))
    await settle(env, await claim_child(env, worker, grandchild.id), Completed())
    assert await state_of(env, child.token.job_id) is State.READY
    assert await state_of(env, parent.token.job_id) is State.SUSPENDED
