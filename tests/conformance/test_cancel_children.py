from __future__ import annotations

import pytest

from app.domain.job import ClaimedJob
from app.domain.outcome import (
    Cancelled,
    CancelVerdict,
    Completed,
    Held,
    Interrupted,
    Outcome,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
    Suspended,
)
from app.domain.state import State
from tests.conformance.runs import (
    CHILD,
    HOUR,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    called,
    claim_child,
    die,
    enlist,
    settle,
    state_of,
    suspend,
    the_wait,
    waits,
)
from tests.support.drivers import ERROR, DriverEnv

# --- cancelled together


async def test_a_cancelled_parent_cancels_its_children_and_theirs(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    running, waiting = a_child(child), a_child(child, delay=HOUR)
    await suspend(env, child, a_call(running, "a", 0), a_call(waiting, "b", 1))
    grandchild = await claim_child(env, worker, running.id)
    await env.driver.cancel(parent.token.job_id, reason="stop")
    views = [await env.describe(job_id) for job_id in (parent.token.job_id, child.token.job_id, running.id, waiting.id)]
    assert [view.state for view in views] == [State.CANCELLED] * 4
    assert [view.state_reason for view in views] == ["stop", *["parent cancelled"] * 3]
    for view in views:
        assert await waits(env, view.id) == []
    assert await env.settle(grandchild.token, Completed()) is SettleAnswer.CANCELLED


async def test_a_parent_cancelled_while_it_runs_cancels_its_children(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held, delay=HOUR)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    await env.claim_one(worker)
    await env.driver.cancel(held.token.job_id, reason="stop")
    assert await state_of(env, child.id) is State.CANCELLED


async def test_a_run_that_its_caller_cancels_cancels_its_children(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held, delay=HOUR)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await settle(env, held, Cancelled(reason="not needed"), has_waits=True)
    view = await env.describe(child.id)
    assert (view.state, view.state_reason) == (State.CANCELLED, "parent cancelled")


async def test_linked_children_and_ended_ones_are_left(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    linked = await env.enqueue(CHILD, parent_id=parent.token.job_id)
    await settle(env, child, Completed(result="1"))
    held = await env.claim_one(worker)
    await suspend(env, held, a_sleep(number=1))
    await env.driver.cancel(parent.token.job_id, reason="stop")
    assert await state_of(env, linked) is State.READY
    assert await state_of(env, child.token.job_id) is State.DONE


async def test_a_job_that_is_another_s_child_is_left(env: DriverEnv) -> None:
    worker = await enlist(env)
    first, child = await called(env, worker, key="k")
    second = await env.running(worker)
    await suspend(env, second, a_call(a_child(second, key="k")))
    await env.driver.cancel(second.token.job_id, reason="stop")
    assert await state_of(env, child.token.job_id) is State.RUNNING
    assert await state_of(env, first.token.job_id) is State.SUSPENDED


async def test_a_child_cancelled_with_its_parent_wakes_whoever_else_waits(env: DriverEnv) -> None:
    worker = await enlist(env)
    first, child = await called(env, worker, key="k")
    second = await env.running(worker)
    await suspend(env, second, a_call(a_child(second, key="k")))
    await env.driver.cancel(first.token.job_id, reason="stop")
    assert await state_of(env, child.token.job_id) is State.CANCELLED
    assert await state_of(env, second.token.job_id) is State.READY
    assert (await the_wait(env, second.token.job_id)).child_state is State.CANCELLED


async def test_a_dead_parent_s_children_go_on(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held, delay=HOUR)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    await die(env, await env.claim_one(worker), has_waits=True)
    assert await state_of(env, child.id) is State.DELAYED
    assert await waits(env, held.token.job_id) == ["call"]


async def test_a_child_already_suspended_with_its_parent_is_no_duplicate(env: DriverEnv) -> None:
    held = await env.running(await enlist(env))
    child = a_child(held)
    stored = Settlement(token=held.token, outcome=Suspended(waits=(a_call(child),)))
    assert await env.driver.settle([stored, stored]) == (SettleAnswer.SETTLED, SettleAnswer.REAPED)
    assert (await env.driver.stats()).by_state[State.READY] == 1


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Interrupted(cause="drain"), State.READY),
        (Retried(error=ERROR, delay=HOUR), State.DELAYED),
        (Snoozed(delay=HOUR), State.DELAYED),
        (Held(reason="does not fit"), State.HELD),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_cancel_finds_the_children_wherever_their_parent_is(
    env: DriverEnv, outcome: Outcome, state: State
) -> None:
    held = await woken_with_a_child(env)
    await settle(env, held, outcome, has_waits=True)
    assert (await state_of(env, held.token.job_id), await waits(env, held.token.job_id)) == (state, ["call"])
    await env.driver.cancel(held.token.job_id, reason="stop")
    run = await env.driver.run(held.token.job_id)
    assert run is not None
    assert [await state_of(env, child) for child in run.children] == [State.CANCELLED]
    assert run.history.waits == ()


async def test_a_cancel_of_a_dead_parent_changes_nothing(env: DriverEnv) -> None:
    held = await woken_with_a_child(env)
    await die(env, held, has_waits=True)
    before = await env.driver.run(held.token.job_id)
    assert await env.driver.cancel(held.token.job_id, reason="stop") is CancelVerdict.ALREADY_FINISHED
    assert await env.driver.run(held.token.job_id) == before
    assert before is not None
    assert [await state_of(env, child) for child in before.children] == [State.DELAYED]


async def woken_with_a_child(env: DriverEnv) -> ClaimedJob:
    """Give a running job that a sleep has woken and that waits for a delayed child too."""
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held, delay=10 * HOUR)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    return await env.claim_one(worker)
