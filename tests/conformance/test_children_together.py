from __future__ import annotations

import asyncio

import pytest

from app.domain.outcome import Completed, DeadLettered, Retried, SettleAnswer, Settlement, Suspended
from app.domain.state import DeadReason, State
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.conformance.runs import (
    CHILD,
    EVERY_NAME,
    MINUTE,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    called,
    claim_child,
    enlist,
    known,
    settle,
    state_of,
    steps,
    suspend,
    the_step,
    waits,
)
from tests.support.drivers import ERROR, NAME, QUEUE, DriverEnv


async def test_several_children_end_in_one_call(env: DriverEnv) -> None:
    worker = await enlist(env)
    pairs = [await called(env, worker) for _ in range(3)]
    answers = await env.driver.settle(
        [
            Settlement(token=pairs[0][1].token, outcome=Completed(result="1"), is_child=True),
            Settlement(
                token=pairs[1][1].token,
                outcome=DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
                is_child=True,
            ),
            Settlement(token=pairs[2][1].token, outcome=Retried(error=ERROR, delay=MINUTE), is_child=True),
        ]
    )
    assert set(answers) == {SettleAnswer.SETTLED}
    states = [await state_of(env, parent.token.job_id) for parent, _ in pairs]
    assert states == [State.READY, State.READY, State.SUSPENDED]


async def test_a_child_that_ends_beside_a_claim_wakes_its_parent(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    other = await env.enqueue(CHILD)
    request = ClaimRequest(
        worker_id=worker, shares=(QueueShare(queue=QUEUE, room=5),), names=frozenset({CHILD}), room=5
    )
    ended = Settlement(token=child.token, outcome=Completed(result="1"), is_child=True)
    answers, claimed = await env.driver.settle_and_claim([ended], request)
    assert (answers, [one.token.job_id for one in claimed]) == ((SettleAnswer.SETTLED,), [other])
    assert await state_of(env, parent.token.job_id) is State.READY
    assert (await the_step(env, parent.token.job_id)).value == "1"


@pytest.mark.parametrize("first", ["parent", "child"])
async def test_a_parent_and_its_child_may_settle_together(env: DriverEnv, first: str) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    call = a_call(a_child(held))
    await suspend(env, held, call, a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    claimed = {one.name: one for one in await env.claim(worker, names=EVERY_NAME)}
    both = [
        Settlement(token=claimed[NAME].token, outcome=Suspended(waits=(known(call),)), has_waits=True),
        Settlement(token=claimed[CHILD].token, outcome=Completed(result="1"), is_child=True),
    ]
    await env.driver.settle(both if first == "parent" else both[::-1])
    assert await state_of(env, held.token.job_id) is State.READY
    assert await steps(env, held.token.job_id) == ["nap", "call"]


async def test_one_of_two_children_is_enough(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    first, second = a_child(held), a_child(held)
    await suspend(env, held, a_call(first, "a", 0), a_call(second, "b", 1))
    children = {one.token.job_id: one for one in await env.claim(worker, names=(CHILD,))}
    await settle(env, children[second.id], Completed(result="2"))
    assert (await steps(env, held.token.job_id), await waits(env, held.token.job_id)) == (["b"], ["a"])
    held = await env.claim_one(worker)
    assert await suspend(env, held, known(a_call(first, "a", 0))) is State.SUSPENDED
    await settle(env, children[first.id], Completed(result="1"))
    assert await state_of(env, held.token.job_id) is State.READY
    assert await steps(env, held.token.job_id) == ["b", "a"]


async def test_a_parent_s_suspension_and_its_child_s_end_at_once_never_miss_each_other(env: DriverEnv) -> None:
    worker = await enlist(env)
    for _ in range(10):
        held = await env.running(worker)
        child = a_child(held)
        await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
        running_child = await claim_child(env, worker, child.id)
        await env.advance(SECOND)
        await env.driver.wake()
        held = await env.claim_one(worker)
        await asyncio.gather(
            suspend(env, held, known(a_call(child))), settle(env, running_child, Completed(result="1"))
        )
        assert await state_of(env, held.token.job_id) is State.READY
        assert await steps(env, held.token.job_id) == ["nap", "call"]
        await settle(env, await env.claim_one(worker), Completed())
