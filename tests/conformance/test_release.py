from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import Counters, WorkerId
from app.domain.outcome import Interrupted
from app.domain.state import State
from tests.support.drivers import ERROR, LEASE, DriverEnv, new_job, with_token


async def test_a_released_claim_is_ready_again_uncounted_and_unrecorded(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    assert await env.driver.release((token,), cause="drain") == 1
    view = await env.describe(token.job_id)
    assert (view.state, view.claim, view.last_outcome) == (State.READY, None, None)
    assert view.counters == Counters(claim_no=1)
    assert await env.ledger(token.job_id) == ()


async def test_released_work_goes_before_new_work(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    fresh = await env.enqueue()
    await env.driver.release((token,), cause="drain")
    assert [held.token.job_id for held in await env.claim(worker)] == [token.job_id, fresh]


@pytest.mark.parametrize("verb", ["release", "reconcile"])
async def test_claims_handed_back_together_keep_their_order(env: DriverEnv, verb: str) -> None:
    worker = await env.register()
    by_id = [new_job() for _ in range(5)]
    order = [by_id[index] for index in (3, 0, 4, 1, 2)]
    await env.driver.enqueue_many(order)
    tokens = [held.token for held in await env.claim(worker)]
    if verb == "release":
        assert await env.driver.release(sorted(tokens, key=lambda token: token.job_id), cause="drain") == 5
    else:
        assert await env.driver.reconcile(worker, ()) == 5
    assert [held.token.job_id for held in await env.claim(worker)] == [job.id for job in order]


async def test_release_keeps_the_history(env: DriverEnv) -> None:
    worker = await env.register()
    await env.close_attempt((await env.running(worker)).token, Interrupted(cause="drain", error=ERROR))
    token = (await env.claim_one(worker)).token
    await env.driver.release((token,), cause="drain")
    view = await env.describe(token.job_id)
    assert (view.counters, view.error) == (Counters(claim_no=2, interrupts=1), ERROR)


async def test_release_is_fenced_and_counts_what_it_released(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    await env.driver.enqueue_many([new_job(), new_job(), new_job()])
    good, wrong_fence, wrong_worker = [held.token for held in await env.claim(worker)]
    tokens = (
        good,
        with_token(wrong_fence, fence=wrong_fence.fence + 1000),
        with_token(wrong_worker, worker_id=other),
    )
    assert await env.driver.release(tokens, cause="drain") == 1
    assert await env.driver.release(tokens, cause="drain") == 0
    assert (await env.driver.stats()).by_state[State.RUNNING] == 2
    assert await env.driver.release((), cause="drain") == 0


async def test_nothing_is_released_once_the_lease_has_passed(env: DriverEnv) -> None:
    token = (await env.running()).token
    await env.advance(LEASE)
    assert await env.driver.release((token,), cause="drain") == 0
    assert (await env.describe(token.job_id)).state is State.RUNNING


# --- reconcile


async def test_reconcile_hands_back_what_the_worker_does_not_hold(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(4)])
    held = [claimed.token for claimed in await env.claim(worker, room=3)]
    foreign = (await env.claim_one(other)).token
    assert await env.driver.reconcile(worker, held[:1]) == 2
    assert (await env.describe(held[0].job_id)).state is State.RUNNING
    assert (await env.describe(foreign.job_id)).state is State.RUNNING
    for token in held[1:]:
        view = await env.describe(token.job_id)
        assert (view.state, view.counters) == (State.READY, Counters(claim_no=1))
        assert await env.ledger(token.job_id) == ()


async def test_reconcile_with_everything_held_hands_nothing_back(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    assert await env.driver.reconcile(worker, (token,)) == 0
    assert await env.driver.reconcile(WorkerId(worker + 1000), ()) == 0


async def test_reconcile_knows_an_old_claim_from_a_new_one(env: DriverEnv) -> None:
    worker = await env.register()
    old = (await env.running(worker)).token
    await env.driver.release((old,), cause="test")
    await env.claim_one(worker)
    assert await env.driver.reconcile(worker, (old,)) == 1


async def test_reconcile_leaves_what_was_claimed_since_it_was_asked_for(env: DriverEnv) -> None:
    """A call that its caller gave up on may take place when the worker has long claimed something else."""
    worker = await env.register()
    lost = (await env.running(worker)).token
    await env.advance(timedelta(milliseconds=1))
    asked = await env.driver.database_time()
    await env.advance(timedelta(milliseconds=1))
    since = (await env.running(worker)).token
    assert await env.driver.reconcile(worker, (), before=asked) == 1
    assert (await env.describe(lost.job_id)).state is State.READY
    assert (await env.describe(since.job_id)).state is State.RUNNING
    assert await env.driver.reconcile(worker, (), before=asked) == 0


async def test_reconciled_work_goes_before_new_work(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    fresh = await env.enqueue()
    await env.driver.reconcile(worker, ())
    assert [held.token.job_id for held in await env.claim(worker)] == [token.job_id, fresh]


async def test_a_worker_without_a_lease_reconciles_nothing(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.advance(LEASE)
    assert await env.driver.reconcile(worker, ()) == 0
    assert (await env.describe(token.job_id)).state is State.RUNNING


# --- isolate


async def test_isolate_is_fenced(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    token = (await env.running(worker)).token
    assert await env.driver.isolate(with_token(token, fence=token.fence + 1)) is False
    assert await env.driver.isolate(with_token(token, worker_id=other)) is False
    assert await env.driver.isolate(token) is True
    assert await env.driver.isolate(token) is True
    await env.driver.release((token,), cause="test")
    assert await env.driver.isolate(token) is False


async def test_nothing_is_isolated_once_the_lease_has_passed(env: DriverEnv) -> None:
    token = (await env.running()).token
    await env.advance(LEASE)
    assert await env.driver.isolate(token) is False


async def test_a_token_of_another_claim_number_releases_nothing(env: DriverEnv) -> None:
    token = (await env.running()).token
    assert await env.driver.release((with_token(token, claim_no=token.claim_no + 1),), cause="test") == 0
    assert (await env.describe(token.job_id)).state is State.RUNNING


async def test_tokens_with_their_jobs_exchanged_release_nothing(env: DriverEnv) -> None:
    worker = await env.register()
    first, second = (await env.running(worker)).token, (await env.running(worker)).token
    exchanged = (with_token(first, job_id=second.job_id), with_token(second, job_id=first.job_id))
    assert await env.driver.release(exchanged, cause="test") == 0
    assert (await env.describe(first.job_id)).state is State.RUNNING
