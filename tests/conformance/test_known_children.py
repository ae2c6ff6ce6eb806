from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import IdempotencyMismatch, JobDuplicate, OutlastError
from app.domain.outcome import Completed, Retried
from app.domain.state import State
from tests.conformance.runs import (
    CHILD,
    HOUR,
    MINUTE,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    called,
    claim_child,
    die,
    enlist,
    history,
    known,
    settle,
    state_of,
    steps,
    suspend,
    the_step,
    the_wait,
    waits,
)
from tests.support.drivers import ERROR, DriverEnv, new_job

# --- a child that was there before


async def test_a_deduped_child_is_the_job_that_is_there(env: DriverEnv) -> None:
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k")
    held = await env.running(worker)
    assert await suspend(env, held, a_call(a_child(held, key="k"))) is State.SUSPENDED
    assert (await the_wait(env, held.token.job_id)).child_id == there
    assert (await env.describe(there)).parent_id is None
    await settle(env, await claim_child(env, worker, there), Completed(result="1"), is_child=False)
    # Whoever runs it cannot know of the wait: the sweep does.
    assert (await env.driver.sweep_waits()).next_after is None
    assert await state_of(env, held.token.job_id) is State.READY
    step = await the_step(env, held.token.job_id)
    assert (step.value, step.child_id) == ("1", there)


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "dead"])
async def test_the_end_of_a_job_that_was_there_is_due_at_once(env: DriverEnv, *, is_done: bool) -> None:
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k")
    first, second = await env.running(worker), await env.running(worker)
    for held in (first, second):
        await suspend(env, held, a_call(a_child(held, key="k")))
    child = await claim_child(env, worker, there)
    assert ((await env.driver.due()).wake_in, await env.driver.wake()) == (None, 0)
    if is_done:
        await settle(env, child, Completed(result="1"), is_child=False)
    else:
        await die(env, child, is_child=False)
    assert (await env.driver.due()).wake_in == timedelta()
    assert await env.driver.wake() == 2
    for held in (first, second):
        assert await state_of(env, held.token.job_id) is State.READY
    assert ((await env.driver.due()).wake_in, await env.driver.wake()) == (None, 0)


async def test_one_child_may_be_waited_for_by_two_runs(env: DriverEnv) -> None:
    worker = await enlist(env)
    first, child = await called(env, worker, key="k")
    second = await env.running(worker)
    await suspend(env, second, a_call(a_child(second, key="k")))
    assert (await the_wait(env, second.token.job_id)).child_id == child.token.job_id
    await settle(env, child, Completed(result="1"))
    for parent in (first, second):
        assert await state_of(env, parent.token.job_id) is State.READY
        assert (await the_step(env, parent.token.job_id)).value == "1"


async def test_a_deduped_child_that_is_done_makes_its_parent_ready_at_once(env: DriverEnv) -> None:
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k", dedupe_for=HOUR)
    await settle(env, await claim_child(env, worker, there), Completed(result="1"))
    held = await env.running(worker)
    await env.advance(MINUTE)
    assert await suspend(env, held, a_call(a_child(held, key="k"))) is State.READY
    step = await the_step(env, held.token.job_id)
    assert (step.value, step.child_id, step.started_at, step.ended_at) == ("1", there, env.now(), env.now())
    assert await waits(env, held.token.job_id) == []


async def test_a_deduped_child_that_is_dead_makes_its_parent_ready_at_once(env: DriverEnv) -> None:
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k", dedupe_for=HOUR)
    await die(env, await claim_child(env, worker, there))
    held = await env.running(worker)
    assert await suspend(env, held, a_call(a_child(held, key="k"))) is State.READY
    assert await steps(env, held.token.job_id) == []
    wait = await the_wait(env, held.token.job_id)
    assert (wait.child_id, wait.child_state) == (there, State.DEAD)


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"fingerprint": 2}, IdempotencyMismatch), ({"on_conflict": "error"}, JobDuplicate)],
    ids=["mismatch", "duplicate"],
)
async def test_a_refused_child_refuses_the_suspension(
    env: DriverEnv, fields: dict[str, Any], error: type[OutlastError]
) -> None:
    there = await env.enqueue(CHILD, key="k", fingerprint=1)
    held = await env.running(await enlist(env))
    good, bad = a_child(held), a_child(held, **{"key": "k", "fingerprint": 1, **fields})
    with pytest.raises(error) as refused:
        await suspend(env, held, a_call(good, "a", 0), a_sleep("b", 1), a_call(bad, "c", 2))
    assert str(refused.value.details["existing_id"]) == str(there)
    assert await state_of(env, held.token.job_id) is State.RUNNING
    assert await waits(env, held.token.job_id) == []
    assert await env.driver.describe(good.id) is None
    await settle(env, held, Completed())


# --- known calls


async def test_a_known_child_that_ended_meanwhile_makes_its_parent_ready_at_once(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    running_child = await claim_child(env, worker, child.id)
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await die(env, running_child)
    assert await state_of(env, held.token.job_id) is State.RUNNING
    assert await suspend(env, held, known(a_call(child))) is State.READY
    assert (await the_wait(env, held.token.job_id)).child_state is State.DEAD


async def test_a_call_forgotten_is_made_anew(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await die(env, child)
    held = await env.claim_one(worker)
    await settle(env, held, Retried(error=ERROR, delay=SECOND), has_waits=True, forgets=("call",))
    assert await waits(env, parent.token.job_id) == []
    await env.advance(SECOND)
    await env.driver.promote()
    held = await env.claim_one(worker)
    second = a_child(held)
    assert await suspend(env, held, a_call(second)) is State.SUSPENDED
    assert (await the_wait(env, held.token.job_id)).child_id == second.id


async def test_a_child_deleted_since_is_gone(env: DriverEnv) -> None:
    parent, child = await called(env)
    await die(env, child)
    await env.forget_job(child.token.job_id)
    wait = await the_wait(env, parent.token.job_id)
    assert (wait.child_state, wait.is_child_gone, wait.has_failed) == (None, True, True)
    held = await env.claim_one(await enlist(env))
    assert await suspend(env, held, known(a_call(new_job(CHILD)))) is State.READY


async def test_a_retried_child_may_still_give_its_result(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await die(env, child)
    held = await env.claim_one(worker)
    await env.driver.retry(child.token.job_id)
    assert not (await the_wait(env, parent.token.job_id)).has_failed
    assert await suspend(env, held, known(a_call(new_job(CHILD)))) is State.SUSPENDED
    await settle(env, await claim_child(env, worker, child.token.job_id), Completed(result="1"))
    assert await state_of(env, parent.token.job_id) is State.READY
    assert (await the_step(env, parent.token.job_id)).value == "1"


async def test_a_retried_child_that_dies_again_is_told_again(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await die(env, child)
    held = await env.claim_one(worker)
    await env.driver.retry(child.token.job_id)
    assert await suspend(env, held, known(a_call(new_job(CHILD)))) is State.SUSPENDED
    await die(env, await claim_child(env, worker, child.token.job_id))
    assert await state_of(env, parent.token.job_id) is State.READY
    assert (await the_wait(env, parent.token.job_id)).child_state is State.DEAD


# --- the sweep


async def test_a_sweep_finds_nothing_that_a_wake_has_found(env: DriverEnv) -> None:
    parent, _ = await called(env)
    swept = await env.driver.sweep_waits()
    assert (swept.woken, swept.next_after) == (0, None)
    assert await state_of(env, parent.token.job_id) is State.SUSPENDED


async def test_a_sweep_goes_through_all_calls_by_their_childrens_ids(env: DriverEnv) -> None:
    worker = await enlist(env)
    waiting = []
    for number in range(5):
        there = await env.enqueue(CHILD, key=str(number))
        held = await env.running(worker)
        await suspend(env, held, a_call(a_child(held, key=str(number))))
        child = await claim_child(env, worker, there)
        if number != 2:
            await settle(env, child, Completed(), is_child=False)
        waiting.append(held.token.job_id)
    woken, after, looks = 0, None, 0
    while looks == 0 or after is not None:
        swept = await env.driver.sweep_waits(after, batch=2)
        woken, after, looks = woken + swept.woken, swept.next_after, looks + 1
        assert looks <= 4
    assert woken == 4
    states = [await state_of(env, job_id) for job_id in waiting]
    assert states == [State.READY, State.READY, State.SUSPENDED, State.READY, State.READY]


@pytest.mark.parametrize("how", ["dead", "gone"])
async def test_a_sweep_tells_of_a_child_that_will_give_no_result(env: DriverEnv, how: str) -> None:
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k")
    held = await env.running(worker)
    await suspend(env, held, a_call(a_child(held, key="k")))
    await die(env, await claim_child(env, worker, there), is_child=False)
    if how == "gone":
        await env.forget_job(there)
    assert await state_of(env, held.token.job_id) is State.SUSPENDED
    assert (await env.driver.sweep_waits()).woken == 1
    assert await state_of(env, held.token.job_id) is State.READY
    wait = await the_wait(env, held.token.job_id)
    assert (wait.child_state, wait.is_child_gone) == ((State.DEAD, False) if how == "dead" else (None, True))


async def test_a_sweep_does_not_tell_twice_of_a_child_that_failed(env: DriverEnv) -> None:
    worker = await enlist(env)
    _, child = await called(env, worker)
    await die(env, child)
    held = await env.claim_one(worker)
    # The run knows by now, and waits for something else.
    assert await suspend(env, held, a_sleep(number=1)) is State.SUSPENDED
    await env.advance(timedelta(minutes=30))
    assert (await env.driver.sweep_waits()).woken == 0
    assert await state_of(env, held.token.job_id) is State.SUSPENDED
    waiting_on = (await env.describe(held.token.job_id)).waiting_on
    assert [(wait.name, wait.child_state) for wait in waiting_on] == [("call", State.DEAD), ("nap", None)]
    assert waiting_on == (await history(env, held.token.job_id)).waits
