"""Jobs that call each other by their idempotency keys would wait for ever: the call that closes a circle is refused."""

from __future__ import annotations

import pytest

from app.domain.job import ClaimedJob, WorkerId
from app.domain.outcome import Completed, SettleAnswer, Settlement, Suspended
from app.domain.state import State
from app.domain.step import NewWait
from app.domain.step_errors import CallCycle
from tests.conformance.runs import (
    CHILD,
    HOUR,
    a_call,
    a_child,
    a_sleep,
    called,
    claim_child,
    die,
    enlist,
    known,
    settle,
    state_of,
    suspend,
    waits,
)
from tests.support.drivers import NAME, DriverEnv, new_job


def closing(held: ClaimedJob, key: str, name: str = NAME) -> NewWait:
    """Give a call that a job of this key answers."""
    return a_call(a_child(held, name, key=key), "closes", 5)


async def a_chain(env: DriverEnv, worker: WorkerId, length: int) -> list[ClaimedJob]:
    """Give jobs each of which waits for the next; the last is running. The first has the key `first`."""
    jobs = [await env.running(worker, key="first")]
    for _ in range(length - 1):
        child = a_child(jobs[-1])
        await suspend(env, jobs[-1], a_call(child))
        jobs.append(await claim_child(env, worker, child.id))
    return jobs


@pytest.mark.parametrize("length", [1, 2, 3, 5])
async def test_the_call_that_closes_a_circle_is_refused(env: DriverEnv, length: int) -> None:
    jobs = await a_chain(env, await enlist(env), length)
    last, ids = jobs[-1], [str(one.token.job_id) for one in jobs]
    fresh = a_child(last, "other.job")
    with pytest.raises(CallCycle) as refused:
        await suspend(env, last, a_call(fresh), closing(last, "first"), a_sleep(number=7))
    assert refused.value.details == {"existing_id": ids[0], "step": "closes", "cycle": ids}
    assert (refused.value.code, refused.value.terminal) == ("JOB_DUPLICATE", True)
    assert all(one in str(refused.value) for one in ids[:-1])
    assert (await state_of(env, last.token.job_id), await waits(env, last.token.job_id)) == (State.RUNNING, [])
    assert await env.driver.describe(fresh.id) is None
    await settle(env, last, Completed())


async def test_a_circle_beside_other_waits_is_found(env: DriverEnv) -> None:
    worker = await enlist(env)
    jobs = await a_chain(env, worker, 2)
    await env.enqueue("other.job", key="beside")
    other = await env.running(worker)
    await suspend(env, other, a_call(a_child(other, "other.job", key="beside")), a_sleep(number=1))
    calls = a_call(a_child(jobs[1], "other.job", key="beside")), closing(jobs[1], "first")
    with pytest.raises(CallCycle):
        await suspend(env, jobs[1], *calls)
    assert await suspend(env, jobs[1], calls[0]) is State.SUSPENDED


async def test_two_that_close_it_in_one_batch_are_refused(env: DriverEnv) -> None:
    worker = await enlist(env)
    one, other = await env.running(worker, key="one"), await env.running(worker, key="other")
    batch = [
        Settlement(token=held.token, outcome=Suspended(waits=(closing(held, key),)))
        for held, key in ((one, "other"), (other, "one"))
    ]
    with pytest.raises(CallCycle):
        await env.driver.settle(batch)
    assert [await state_of(env, held.token.job_id) for held in (one, other)] == [State.RUNNING] * 2
    assert await env.driver.settle(batch[:1]) == (SettleAnswer.SETTLED,)
    with pytest.raises(CallCycle):
        await env.driver.settle(batch[1:])


async def test_a_job_that_waits_for_another_may_be_called(env: DriverEnv) -> None:
    worker = await enlist(env)
    jobs = await a_chain(env, worker, 3)
    caller = await env.running(worker)
    assert await suspend(env, caller, closing(caller, "first")) is State.SUSPENDED
    await settle(env, jobs[2], Completed())


async def test_a_job_that_has_ended_waits_for_nobody(env: DriverEnv) -> None:
    worker = await enlist(env)
    first = await env.running(worker, key="first", dedupe_for=9 * HOUR, deadline=HOUR)
    child = a_child(first)
    await suspend(env, first, a_call(child))
    running_child = await claim_child(env, worker, child.id)
    await env.advance(HOUR)
    assert [one.job_id for one in await env.driver.expire()] == [first.token.job_id]
    assert await waits(env, first.token.job_id) == ["call"]
    assert await suspend(env, running_child, closing(running_child, "first")) is State.READY


async def test_a_run_that_was_told_of_a_failure_does_not_wait(env: DriverEnv) -> None:
    worker = await enlist(env)
    first = await env.running(worker, key="first")
    child = a_child(first)
    await suspend(env, first, a_call(child))
    await die(env, await claim_child(env, worker, child.id))
    first = await env.claim_one(worker)
    assert await suspend(env, first, a_sleep(number=1)) is State.SUSPENDED
    await env.driver.retry(child.id)
    again = await claim_child(env, worker, child.id)
    assert await suspend(env, again, closing(again, "first")) is State.SUSPENDED


async def test_a_known_call_is_not_looked_at_again(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, _ = await called(env, worker, key="k")
    assert await state_of(env, parent.token.job_id) is State.SUSPENDED
    second = await env.running(worker)
    assert await suspend(env, second, closing(second, "k", CHILD), a_sleep(delay=HOUR)) is State.SUSPENDED
    await env.advance(HOUR)
    await env.driver.wake()
    again = await env.claim_one(worker)
    assert await suspend(env, again, known(a_call(new_job(), "closes", 5))) is State.SUSPENDED
