from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import ClaimToken
from app.domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Outcome,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
    Suspended,
)
from app.domain.state import DeadReason, State
from app.drivers.protocol import PurgeQuery
from tests.conformance.runs import a_sleep
from tests.support.drivers import ERROR, LEASE, DriverEnv, new_id, new_job, with_token

MINUTE = timedelta(minutes=1)

EVERY_OUTCOME: tuple[Outcome, ...] = (
    Completed(result="1"),
    Snoozed(delay=MINUTE),
    Suspended(waits=(a_sleep(),)),
    Retried(error=ERROR, delay=MINUTE),
    DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
    Interrupted(cause="drain"),
    Cancelled(reason="not needed"),
    Held(reason="payload does not fit"),
)
every_outcome = pytest.mark.parametrize("outcome", EVERY_OUTCOME, ids=lambda outcome: type(outcome).__name__)


@every_outcome
@pytest.mark.parametrize("wrong", ["worker", "fence", "claim_no"])
async def test_each_component_of_the_token_fences(env: DriverEnv, outcome: Outcome, wrong: str) -> None:
    other = await env.register()
    held = await env.running()
    token = held.token
    stale = {
        "worker": with_token(token, worker_id=other),
        "fence": with_token(token, fence=token.fence + 1),
        "claim_no": with_token(token, claim_no=token.claim_no + 1, fence=token.fence + 1),
    }[wrong]
    before = await env.describe(token.job_id)
    assert await env.settle(stale, outcome) is SettleAnswer.REAPED
    assert await env.describe(token.job_id) == before
    assert await env.ledger(token.job_id) == ()
    await env.close_attempt(token, outcome)


@every_outcome
async def test_an_older_claim_of_the_same_worker_settles_nothing(env: DriverEnv, outcome: Outcome) -> None:
    worker = await env.register()
    old = (await env.running(worker)).token
    await env.driver.release((old,), cause="test")
    new = (await env.claim_one(worker)).token
    assert await env.settle(old, outcome) is SettleAnswer.REAPED
    assert (await env.describe(old.job_id)).state is State.RUNNING
    await env.close_attempt(new, outcome)


async def test_a_job_nobody_has_claimed_is_not_settled(env: DriverEnv) -> None:
    worker = await env.register()
    job_id = await env.enqueue()
    token = ClaimToken(job_id=job_id, claim_no=0, worker_id=worker, fence=1)
    assert await env.settle(token, Completed()) is SettleAnswer.REAPED
    assert (await env.describe(job_id)).state is State.READY


async def test_an_unknown_job_is_deleted(env: DriverEnv) -> None:
    token = ClaimToken(job_id=new_id(), claim_no=1, worker_id=await env.register(), fence=1)
    assert await env.settle(token, Completed()) is SettleAnswer.DELETED


@every_outcome
async def test_a_cancelled_claim_is_superseded_by_the_cancel(env: DriverEnv, outcome: Outcome) -> None:
    held = await env.running()
    await env.driver.cancel(held.token.job_id, reason="stop")
    before = await env.describe(held.token.job_id)
    assert await env.settle(held.token, outcome) is SettleAnswer.CANCELLED
    assert await env.describe(held.token.job_id) == before


@every_outcome
async def test_a_reaped_claim_is_superseded_by_the_reap(env: DriverEnv, outcome: Outcome) -> None:
    held = await env.running()
    await env.vanish()
    await env.driver.reap()
    before = await env.describe(held.token.job_id)
    assert await env.settle(held.token, outcome) is SettleAnswer.REAPED
    assert await env.describe(held.token.job_id) == before


async def test_a_claim_of_a_purged_job_is_superseded_by_the_delete(env: DriverEnv) -> None:
    held = await env.running()
    await env.driver.cancel(held.token.job_id, reason="stop")
    await env.advance(timedelta(seconds=10))
    assert await env.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=timedelta(seconds=5))) == 1
    assert await env.settle(held.token, Completed()) is SettleAnswer.DELETED


@every_outcome
async def test_a_lease_that_has_passed_settles_nothing_although_nobody_has_reaped(
    env: DriverEnv, outcome: Outcome
) -> None:
    held = await env.running()
    await env.advance(LEASE)
    assert await env.settle(held.token, outcome) is SettleAnswer.REAPED
    assert (await env.describe(held.token.job_id)).state is State.RUNNING
    assert await env.ledger(held.token.job_id) == ()


async def test_a_lease_holds_until_its_last_instant(env: DriverEnv) -> None:
    held = await env.running()
    await env.advance(LEASE - timedelta(milliseconds=1))
    await env.close_attempt(held.token, Completed())


async def test_a_closed_worker_settles_nothing(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    await env.driver.close_worker(worker)
    assert await env.settle(held.token, Completed()) is SettleAnswer.REAPED
    assert (await env.describe(held.token.job_id)).state is State.RUNNING


@every_outcome
async def test_the_same_settlement_twice_counts_once(env: DriverEnv, outcome: Outcome) -> None:
    held = await env.running()
    await env.close_attempt(held.token, outcome)
    before = await env.describe(held.token.job_id)
    expected = SettleAnswer.CANCELLED if before.state is State.CANCELLED else SettleAnswer.REAPED
    assert await env.settle(held.token, outcome) is expected
    assert await env.describe(held.token.job_id) == before


# --- batches


async def test_one_superseded_settlement_leaves_the_others_settled(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(9)])
    tokens = [held.token for held in await env.claim(worker)]
    await env.driver.cancel(tokens[4].job_id, reason="stop")
    tokens[7] = with_token(tokens[7], fence=tokens[7].fence + 1000)
    answers = await env.driver.settle([Settlement(token=token, outcome=Completed()) for token in tokens])
    expected = [SettleAnswer.SETTLED] * 9
    expected[4], expected[7] = SettleAnswer.CANCELLED, SettleAnswer.REAPED
    assert list(answers) == expected
    by_state = (await env.driver.stats()).by_state
    assert (by_state[State.DONE], by_state[State.CANCELLED], by_state[State.RUNNING]) == (7, 1, 1)


async def test_a_batch_may_mix_every_outcome_in_any_order(env: DriverEnv) -> None:
    worker = await env.register()
    jobs = [new_job(key=f"k{index}") for index in range(len(EVERY_OUTCOME))]
    await env.driver.enqueue_many(jobs)
    tokens = {held.token.job_id: held.token for held in await env.claim(worker)}
    settlements = [
        Settlement(token=tokens[job.id], outcome=outcome) for job, outcome in zip(jobs, EVERY_OUTCOME, strict=True)
    ]
    answers = await env.driver.settle(settlements[::2] + settlements[1::2])
    assert set(answers) == {SettleAnswer.SETTLED}
    states = [(await env.describe(job.id)).state for job in jobs]
    assert states == [
        State.DONE,
        State.DELAYED,
        State.SUSPENDED,
        State.DELAYED,
        State.DEAD,
        State.READY,
        State.CANCELLED,
        State.HELD,
    ]
    freed = [not (await env.enqueue_again(key=job.key)).deduped for job in jobs]
    assert freed == [True, False, False, False, True, False, True, False]


async def test_a_batch_interrupted_together_keeps_its_order(env: DriverEnv) -> None:
    worker = await env.register()
    by_id = [new_job() for _ in range(5)]
    order = [by_id[index] for index in (3, 0, 4, 1, 2)]
    await env.driver.enqueue_many(order)
    tokens = sorted((held.token for held in await env.claim(worker)), key=lambda token: token.job_id)
    await env.driver.settle([Settlement(token=token, outcome=Interrupted(cause="drain")) for token in tokens])
    assert [held.token.job_id for held in await env.claim(worker)] == [job.id for job in order]


async def test_one_batch_may_settle_for_several_workers(env: DriverEnv) -> None:
    first = (await env.running(await env.register())).token
    second = (await env.running(await env.register())).token
    swapped = with_token(second, worker_id=first.worker_id)
    answers = await env.driver.settle(
        [Settlement(token=token, outcome=Completed()) for token in (swapped, second, first)]
    )
    assert list(answers) == [SettleAnswer.REAPED, SettleAnswer.SETTLED, SettleAnswer.SETTLED]


async def test_one_token_twice_in_a_batch_settles_once(env: DriverEnv) -> None:
    held = await env.running()
    answers = await env.driver.settle(
        [
            Settlement(token=held.token, outcome=Completed(result="1")),
            Settlement(token=held.token, outcome=Completed(result="2")),
        ]
    )
    assert list(answers) == [SettleAnswer.SETTLED, SettleAnswer.REAPED]
    assert (await env.describe(held.token.job_id)).result == "1"


async def test_an_empty_batch_is_nothing(env: DriverEnv) -> None:
    assert await env.driver.settle(()) == ()
