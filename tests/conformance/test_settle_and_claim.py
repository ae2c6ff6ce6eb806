"""Settling and claiming at once: both halves do what they do apart, and neither can spoil the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import QueuesEmpty
from app.domain.job import WorkerId
from app.domain.outcome import Completed, Interrupted, Outcome, Retried, SettleAnswer, Settlement
from app.domain.state import State
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.conformance.test_settle_fence import every_outcome
from tests.support.drivers import ERROR, NAME, QUEUE, DriverEnv, with_token

MINUTE = timedelta(minutes=1)


def request(worker: WorkerId, *, room: int = 10, queues: tuple[str, ...] = (QUEUE,)) -> ClaimRequest:
    shares = tuple(QueueShare(queue=queue, room=room) for queue in queues)
    return ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=room)


@every_outcome
async def test_every_outcome_is_stored_beside_a_claim(env: DriverEnv, outcome: Outcome) -> None:
    """As by two calls: the view and the ledger of the settled job, and what the claim brings."""
    worker = await env.register()
    apart, together = await env.running(worker), await env.running(worker)
    await env.close_attempt(apart.token, outcome)
    if isinstance(outcome, Interrupted):  # it is ready again, and would be claimed before what is new
        await env.driver.cancel(apart.token.job_id, reason="not needed")
    waiting = await env.enqueue()
    answers, claimed = await env.driver.settle_and_claim(
        [Settlement(token=together.token, outcome=outcome)], request(worker, room=1)
    )
    assert answers == (SettleAnswer.SETTLED,)
    assert len(claimed) == 1
    if not isinstance(outcome, Interrupted):
        assert claimed[0].token.job_id == waiting
        one, other = await env.describe(apart.token.job_id), await env.describe(together.token.job_id)
        assert (one.state, one.counters, one.result) == (other.state, other.counters, other.result)
    ends = [(row.outcome, row.cause, row.counted) for row in await env.ledger(apart.token.job_id)]
    assert [(row.outcome, row.cause, row.counted) for row in await env.ledger(together.token.job_id)][:1] == ends[:1]


async def test_what_it_claims_is_running_and_can_be_settled(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    waiting = [await env.enqueue() for _ in range(3)]
    done = [Settlement(token=held.token, outcome=Completed(result="1"))]
    answers, claimed = await env.driver.settle_and_claim(done, request(worker))
    assert answers == (SettleAnswer.SETTLED,)
    assert [job.token.job_id for job in claimed] == waiting
    for job in claimed:
        assert (await env.describe(job.token.job_id)).state is State.RUNNING
        await env.close_attempt(job.token, Completed())


async def test_it_claims_no_more_than_there_is_room_for_in_order_over_queues(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    late = await env.enqueue(queue="other", priority=7)
    first = await env.enqueue(queue="other", priority=1)
    second = await env.enqueue(priority=3)
    done = [Settlement(token=held.token, outcome=Completed())]
    _, claimed = await env.driver.settle_and_claim(done, request(worker, room=2, queues=(QUEUE, "other")))
    assert [job.token.job_id for job in claimed] == [first, second]
    assert (await env.describe(late)).state is State.READY


async def test_answers_come_in_the_order_of_the_settlements(env: DriverEnv) -> None:
    worker = await env.register()
    held = [await env.running(worker) for _ in range(3)]
    await env.driver.cancel(held[1].token.job_id, reason="not needed")
    batch = [Settlement(token=job.token, outcome=Completed()) for job in reversed(held)]
    answers, _ = await env.driver.settle_and_claim(batch, request(worker))
    assert answers == (SettleAnswer.SETTLED, SettleAnswer.CANCELLED, SettleAnswer.SETTLED)


async def test_a_superseded_settlement_leaves_the_claim(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    waiting = await env.enqueue()
    stale = with_token(held.token, fence=held.token.fence + 1)
    answers, claimed = await env.driver.settle_and_claim(
        [Settlement(token=stale, outcome=Completed())], request(worker)
    )
    assert answers == (SettleAnswer.REAPED,)
    assert [job.token.job_id for job in claimed] == [waiting]
    assert (await env.describe(held.token.job_id)).state is State.RUNNING


async def test_two_settlements_of_one_claim_close_it_once(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    waiting = await env.enqueue()
    twice = [Settlement(token=held.token, outcome=outcome) for outcome in (Completed(result="1"), Completed())]
    answers, claimed = await env.driver.settle_and_claim(twice, request(worker))
    assert answers == (SettleAnswer.SETTLED, SettleAnswer.REAPED)
    assert [job.token.job_id for job in claimed] == [waiting]
    assert (await env.describe(held.token.job_id)).result == "1"


async def test_after_the_lease_has_passed_neither_half_does_anything(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    waiting = await env.enqueue()
    await env.vanish()
    done = [Settlement(token=held.token, outcome=Completed())]
    assert await env.driver.settle_and_claim(done, request(worker)) == ((SettleAnswer.REAPED,), ())
    assert (await env.describe(held.token.job_id)).state is State.RUNNING
    assert (await env.describe(waiting)).state is State.READY


async def test_each_half_asks_for_the_lease_of_its_own_worker(env: DriverEnv) -> None:
    """A worker with a new registration settles nothing under the lost one, and claims all the same."""
    lost = await env.register()
    held = await env.running(lost)
    await env.vanish()
    waiting, worker = await env.enqueue(), await env.register()
    done = [Settlement(token=held.token, outcome=Completed())]
    answers, claimed = await env.driver.settle_and_claim(done, request(worker))
    assert answers == (SettleAnswer.REAPED,)
    assert [job.token.job_id for job in claimed] == [waiting]
    kept = [Settlement(token=claimed[0].token, outcome=Completed())]
    assert await env.driver.settle_and_claim(kept, request(lost)) == ((SettleAnswer.SETTLED,), ())


async def test_a_closed_worker_claims_nothing(env: DriverEnv) -> None:
    worker, closed = await env.register(), await env.register()
    held = await env.running(worker)
    await env.enqueue()
    await env.driver.close_worker(closed)
    done = [Settlement(token=held.token, outcome=Completed())]
    assert await env.driver.settle_and_claim(done, request(closed)) == ((SettleAnswer.SETTLED,), ())


async def test_a_paused_queue_gives_nothing_and_takes_outcomes(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    await env.enqueue()
    await env.driver.pause_queue(QUEUE, by="ada")
    done = [Settlement(token=held.token, outcome=Completed())]
    assert await env.driver.settle_and_claim(done, request(worker)) == ((SettleAnswer.SETTLED,), ())


async def test_what_waits_again_is_not_claimed_with_the_same_call(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    retried = [Settlement(token=held.token, outcome=Retried(error=ERROR, delay=MINUTE))]
    assert await env.driver.settle_and_claim(retried, request(worker)) == ((SettleAnswer.SETTLED,), ())


async def test_a_key_is_free_after_it(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker, key="k-1")
    done = [Settlement(token=held.token, outcome=Completed())]
    await env.driver.settle_and_claim(done, request(worker))
    assert not (await env.enqueue_again(key="k-1")).deduped


@pytest.mark.parametrize("room", [0, -1])
async def test_without_room_it_is_a_settle(env: DriverEnv, room: int) -> None:
    worker = await env.register()
    held, waiting = await env.running(worker), await env.enqueue()
    done = [Settlement(token=held.token, outcome=Completed())]
    assert await env.driver.settle_and_claim(done, request(worker, room=room)) == ((SettleAnswer.SETTLED,), ())
    assert (await env.describe(waiting)).state is State.READY


async def test_without_settlements_it_is_a_claim(env: DriverEnv) -> None:
    worker, waiting = await env.register(), await env.enqueue()
    answers, claimed = await env.driver.settle_and_claim([], request(worker))
    assert answers == ()
    assert [job.token.job_id for job in claimed] == [waiting]


async def test_without_a_queue_it_is_refused_and_nothing_is_settled(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    done = [Settlement(token=held.token, outcome=Completed())]
    with pytest.raises(QueuesEmpty):
        await env.driver.settle_and_claim(done, request(worker, queues=()))
    assert (await env.describe(held.token.job_id)).state is State.RUNNING
