from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import Counters, JobId
from app.domain.ledger import CRASHED_TOO_OFTEN
from app.domain.outcome import Completed, OutcomeKind, Retried, SettleAnswer
from app.domain.snapshot import Reaped
from app.domain.state import DeadReason, State
from tests.support.drivers import ERROR, LEASE, NAME, QUEUE, DriverEnv, new_job


async def _crash(env: DriverEnv, *, alone: bool = False) -> Reaped:
    """One more worker takes the one ready job and vanishes."""
    held = await env.claim_one(await env.register())
    if alone:
        assert await env.driver.isolate(held.token)
    await env.vanish()
    (reaped,) = await env.driver.reap()
    return reaped


async def test_a_lease_that_lasts_is_left_alone(env: DriverEnv) -> None:
    held = await env.running()
    await env.advance(LEASE - timedelta(seconds=1))
    assert await env.driver.reap() == ()
    await env.close_attempt(held.token, Completed())


async def test_a_vanished_worker_is_a_crash_of_what_it_held(env: DriverEnv) -> None:
    worker = await env.register(host="host-b", code_version="2.0")
    held = await env.running(worker)
    await env.vanish()
    assert await env.driver.reap() == (
        Reaped(
            job_id=held.token.job_id,
            name=NAME,
            queue=QUEUE,
            claim_no=1,
            worker_id=worker,
            outcome=OutcomeKind.CRASHED,
            cause="worker_vanished",
            attempt=1,
            lasted=LEASE + timedelta(seconds=1),
            is_dead=False,
        ),
    )
    view = await env.describe(held.token.job_id)
    assert (view.state, view.counters) == (State.READY, Counters(claim_no=1, crashes=1))
    assert (view.last_outcome, view.error) == (OutcomeKind.CRASHED, None)
    (row,) = await env.ledger(held.token.job_id)
    assert (row.number, row.outcome, row.cause, row.counted) == (1, OutcomeKind.CRASHED, "worker_vanished", False)
    assert (row.worker_id, row.host, row.code_version) == (worker, "host-b", "2.0")
    assert (row.started_at, row.ended_at, row.error) == (held.claimed_at, env.now(), None)
    (lost,) = [view for view in await env.driver.workers() if view.id == worker]
    assert (lost.lost_at, lost.closed_at) == (env.now(), None)


async def test_a_second_reap_finds_nothing(env: DriverEnv) -> None:
    await env.running()
    await env.vanish()
    assert len(await env.driver.reap()) == 1
    assert await env.driver.reap() == ()


async def test_crashed_work_goes_before_new_work(env: DriverEnv) -> None:
    held = await env.running()
    fresh = await env.enqueue()
    await env.vanish()
    await env.driver.reap()
    claimed = await env.claim(await env.register())
    assert [each.token.job_id for each in claimed] == [held.token.job_id, fresh]


async def test_a_job_dies_at_its_crash_budget_and_frees_its_key(env: DriverEnv) -> None:
    job_id = await env.enqueue(max_crashes=3, key="k")
    assert not (await _crash(env)).is_dead
    assert not (await _crash(env)).is_dead
    reaped = await _crash(env, alone=True)
    assert (reaped.outcome, reaped.is_dead, reaped.claim_no) == (OutcomeKind.CRASHED, True, 3)
    view = await env.describe(job_id)
    assert (view.state, view.state_reason) == (State.DEAD, DeadReason.CRASHED_TOO_OFTEN)
    assert view.counters == Counters(claim_no=3, crashes=3)
    assert (view.error, view.finished_at) == (CRASHED_TOO_OFTEN, env.now())
    assert [row.error for row in await env.ledger(job_id)] == [None, None, CRASHED_TOO_OFTEN]
    assert (await env.enqueue_again(key="k")).deduped is False


async def test_the_last_crash_counts_only_if_the_job_ran_alone(env: DriverEnv) -> None:
    job_id = await env.enqueue(max_crashes=2)
    await _crash(env)
    for _ in range(3):
        assert not (await _crash(env)).is_dead
        assert (await env.describe(job_id)).counters.crashes == 1
    assert (await _crash(env, alone=True)).is_dead


async def test_running_alone_is_a_fact_of_one_claim(env: DriverEnv) -> None:
    await env.enqueue(max_crashes=1)
    worker = await env.register()
    token = (await env.claim_one(worker)).token
    await env.driver.isolate(token)
    await env.driver.release((token,), cause="test")
    assert not (await _crash(env)).is_dead


async def test_a_poison_job_does_not_spend_its_neighbours_budget(env: DriverEnv) -> None:
    jobs = [new_job(max_crashes=2) for _ in range(2)]
    await env.driver.enqueue_many(jobs)
    for _ in range(4):
        assert len(await env.claim(await env.register())) == 2
        await env.vanish()
        assert [reaped.is_dead for reaped in await env.driver.reap()] == [False, False]
    assert [(await env.describe(job.id)).counters.crashes for job in jobs] == [1, 1]


async def test_crashes_do_not_spend_attempts(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=3_600_000)
    token = (await env.running(worker)).token
    await env.close_attempt(token, Retried(error=ERROR, delay=timedelta()))
    await env.driver.promote()
    await _crash(env)
    view = await env.describe(token.job_id)
    assert view.counters == Counters(attempt=1, claim_no=2, crashes=1)


async def test_claims_of_a_worker_closed_in_order_are_interrupted(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.driver.close_worker(worker)
    (reaped,) = await env.driver.reap()
    assert (reaped.job_id, reaped.outcome, reaped.is_dead) == (token.job_id, OutcomeKind.INTERRUPTED, False)
    assert reaped.cause == "worker_closed"
    view = await env.describe(token.job_id)
    assert (view.state, view.counters) == (State.READY, Counters(claim_no=1, interrupts=1))
    (row,) = await env.ledger(token.job_id)
    assert (row.outcome, row.cause, row.counted) == (OutcomeKind.INTERRUPTED, "worker_closed", False)


async def test_claims_of_an_absent_worker_are_taken_over(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.forget_worker(worker)
    (reaped,) = await env.driver.reap()
    assert (reaped.job_id, reaped.outcome) == (token.job_id, OutcomeKind.CRASHED)
    (row,) = await env.ledger(token.job_id)
    assert (row.cause, row.host, row.code_version) == ("worker_vanished", None, None)


async def test_every_orphan_is_found_whatever_the_batch(env: DriverEnv) -> None:
    await env.driver.enqueue_many([new_job() for _ in range(7)])
    held = await env.claim(await env.register())
    await env.vanish()
    seen: list[JobId] = []
    for expected in (3, 3, 1, 0):
        reaped = await env.driver.reap(batch=3)
        assert len(reaped) == expected
        seen += [each.job_id for each in reaped]
    assert sorted(seen) == sorted(each.token.job_id for each in held)


async def test_only_the_vanished_worker_loses_its_claims(env: DriverEnv) -> None:
    gone, alive = await env.register(), await env.register(lease_ms=3_600_000)
    lost = (await env.running(gone)).token
    kept = (await env.running(alive)).token
    await env.vanish()
    assert [reaped.job_id for reaped in await env.driver.reap()] == [lost.job_id]
    await env.close_attempt(kept, Completed())


async def test_a_lost_worker_that_closes_late_stays_lost(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.enqueue_many([new_job(), new_job()])
    assert len(await env.claim(worker)) == 2
    await env.vanish()
    await env.driver.reap(batch=1)
    await env.driver.close_worker(worker)
    (view,) = await env.driver.workers()
    assert (view.lost_at, view.closed_at) == (env.now(), None)
    (reaped,) = await env.driver.reap()
    assert reaped.outcome is OutcomeKind.CRASHED


# --- surrender


async def test_surrendered_claims_are_lease_lost_and_uncounted(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.vanish()
    (surrendered,) = await env.driver.surrender(worker)
    assert surrendered == Reaped(
        job_id=token.job_id,
        name=NAME,
        queue=QUEUE,
        claim_no=1,
        worker_id=worker,
        outcome=OutcomeKind.LEASE_LOST,
        cause="lease_lost",
        attempt=1,
        lasted=LEASE + timedelta(seconds=1),
        is_dead=False,
    )
    view = await env.describe(token.job_id)
    assert (view.state, view.counters) == (State.READY, Counters(claim_no=1))
    assert view.last_outcome is OutcomeKind.LEASE_LOST
    (row,) = await env.ledger(token.job_id)
    assert (row.outcome, row.cause, row.counted) == (OutcomeKind.LEASE_LOST, "lease_lost", False)


async def test_surrender_closes_the_worker(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    assert len(await env.driver.surrender(worker)) == 1
    assert await env.claim(worker) == ()
    assert not (await env.renew(worker)).is_held
    assert await env.settle(token, Completed()) is SettleAnswer.REAPED
    (view,) = await env.driver.workers()
    assert view.closed_at == env.now()
    assert await env.driver.surrender(worker) == ()


async def test_what_a_reaper_took_stays_as_it_was_recorded(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.vanish()
    await env.driver.reap()
    before = await env.describe(token.job_id)
    assert await env.driver.surrender(worker) == ()
    assert await env.describe(token.job_id) == before


async def test_surrendered_work_goes_before_new_work(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    fresh = await env.enqueue()
    await env.driver.surrender(worker)
    claimed = await env.claim(await env.register())
    assert [held.token.job_id for held in claimed] == [token.job_id, fresh]


@pytest.mark.parametrize("mine", [0, 3])
async def test_surrender_takes_only_its_own(env: DriverEnv, mine: int) -> None:
    worker, other = await env.register(), await env.register()
    foreign = (await env.running(other)).token
    await env.driver.enqueue_many([new_job() for _ in range(mine)])
    await env.claim(worker)
    assert len(await env.driver.surrender(worker)) == mine
    await env.close_attempt(foreign, Completed())
