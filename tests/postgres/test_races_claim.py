"""Claim against every verb: nobody waits for a claim but who acts by id, and a claim waits for nobody."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outcome import CancelVerdict, Completed, OutcomeKind, Retried, SettleAnswer
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena
from tests.support.drivers import ERROR, LEASE

pytestmark = pytest.mark.postgres


async def test_two_claims_share_the_queue_without_waiting(arena: Arena) -> None:
    first, second = await arena.enqueue(), await arena.enqueue()
    one, other = await arena.register(), await arena.register()
    async with arena.holding() as holder:
        taken = await holder.claim_one(one)
        beside = await arena.at_once(lambda seat: seat.claim(other))
        await holder.commit()
    assert taken.token.job_id == first
    assert [claimed.token.job_id for claimed in beside] == [second]
    assert taken.token.fence != beside[0].token.fence


async def test_a_claim_does_not_see_what_a_settle_hands_back_before_its_commit(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Retried(error=ERROR, delay=timedelta()))
        assert await arena.at_once(lambda seat: seat.claim(worker)) == ()
        await settler.commit()
    await arena.driver.promote()
    again = await arena.claim_one(worker)
    assert (again.token.claim_no, again.counters.attempt) == (2, 2)
    assert await arena.bucket(token.job_id) == "running"


async def test_a_cancel_behind_a_claim_takes_the_job_from_the_worker(arena: Arena) -> None:
    job_id, worker = await arena.enqueue(key="k"), await arena.register()
    async with arena.holding() as claimer:
        token = (await claimer.claim_one(worker)).token
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="wrong order"))
        await cancelling.is_blocked_by(claimer)
        await claimer.commit()
    assert await cancelling.result() is CancelVerdict.SIGNALLED
    assert await arena.bucket(job_id) == "finished"
    assert await arena.key_holder("k") is None
    assert await arena.settle(token, Completed()) is SettleAnswer.CANCELLED
    assert [row.cause for row in await arena.ledger(job_id)] == ["operator"]


async def test_a_cancel_behind_a_claim_that_rolls_back_finds_the_job_where_it_was(arena: Arena) -> None:
    job_id, worker = await arena.enqueue(), await arena.register()
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="wrong order"))
        await cancelling.is_blocked_by(claimer)
        await claimer.rollback()
    assert await cancelling.result() is CancelVerdict.CANCELLED_BEFORE_START
    assert await arena.bucket(job_id) == "finished"
    assert await arena.ledger(job_id) == ()


async def test_a_claim_passes_over_what_is_being_cancelled(arena: Arena) -> None:
    doomed, other, worker = await arena.enqueue(), await arena.enqueue(), await arena.register()
    async with arena.holding() as canceller:
        await canceller.driver.cancel(doomed, reason="wrong order")
        claimed = await arena.at_once(lambda seat: seat.claim(worker))
        await canceller.commit()
    assert [job.token.job_id for job in claimed] == [other]
    assert await arena.bucket(doomed) == "finished"


async def test_a_claim_committed_after_its_workers_reaping_is_swept_by_the_next_reap(arena: Arena) -> None:
    job_id, worker = await arena.enqueue(), await arena.register()
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        await arena.vanish()
        assert await arena.at_once(lambda seat: seat.driver.reap()) == ()
        await claimer.commit()
    assert await arena.bucket(job_id) == "running"
    (reaped,) = await arena.driver.reap()
    assert (reaped.job_id, reaped.worker_id) == (job_id, worker)
    assert await arena.bucket(job_id) == "ready"


async def test_a_claim_committed_after_its_worker_was_lost_and_surrendered_is_no_crash(arena: Arena) -> None:
    job_id, worker = await arena.enqueue(), await arena.register()
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        await arena.vanish()
        assert await arena.at_once(lambda seat: seat.driver.reap()) == ()
        assert await arena.at_once(lambda seat: seat.driver.surrender(worker)) == ()
        await claimer.commit()
    (reaped,) = await arena.driver.reap()
    assert (reaped.outcome, reaped.cause) == (OutcomeKind.LEASE_LOST, "lease_lost")
    view = await arena.describe(job_id)
    assert (view.state, view.counters.attempt, view.counters.crashes) == (State.READY, 0, 0)


async def test_a_claim_does_not_see_what_a_reap_hands_back_before_its_commit(arena: Arena) -> None:
    job_id = (await arena.running()).token.job_id
    await arena.vanish()
    worker = await arena.register()
    async with arena.holding() as reaper:
        assert len(await reaper.driver.reap()) == 1
        assert await arena.at_once(lambda seat: seat.claim(worker)) == ()
        await reaper.commit()
    again = await arena.claim_one(worker)
    assert (again.token.job_id, again.token.claim_no, again.counters.crashes) == (job_id, 2, 1)


async def test_a_claim_and_a_renewal_of_one_worker_do_not_wait_for_each_other(arena: Arena) -> None:
    await arena.enqueue()
    worker = await arena.register()
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        assert (await arena.at_once(lambda seat: seat.renew(worker))).is_held
        await claimer.commit()
    await arena.enqueue()
    async with arena.holding() as renewer:
        assert (await renewer.renew(worker)).is_held
        assert len(await arena.at_once(lambda seat: seat.claim(worker))) == 1
        await renewer.commit()


async def test_a_claim_does_not_see_a_retried_job_before_its_commit(arena: Arena) -> None:
    job_id, worker = await arena.enqueue(), await arena.register()
    await arena.driver.cancel(job_id, reason="wrong order")
    async with arena.holding() as operator:
        await operator.driver.retry(job_id)
        assert await arena.at_once(lambda seat: seat.claim(worker)) == ()
        await operator.commit()
    assert (await arena.claim_one(worker)).token.job_id == job_id


async def test_a_claim_does_not_see_a_promoted_job_before_its_commit(arena: Arena) -> None:
    job_id, worker = await arena.enqueue(delay=timedelta(seconds=1)), await arena.register()
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        assert await arena.at_once(lambda seat: seat.claim(worker)) == ()
        await promoter.commit()
    assert (await arena.claim_one(worker)).token.job_id == job_id


async def test_a_claim_and_a_purge_never_meet(arena: Arena) -> None:
    worker = await arena.register()
    old = (await arena.running(worker)).token
    await arena.close_attempt(old, Completed())
    await arena.advance(LEASE / 2)
    job_id = await arena.enqueue()
    async with arena.holding() as purger:
        query = PurgeQuery(state=State.DONE, older_than=timedelta(seconds=1))
        assert await purger.driver.purge(query) == 1
        claimed = await arena.at_once(lambda seat: seat.claim_one(worker))
        await purger.commit()
    assert claimed.token.job_id == job_id
    assert await arena.driver.describe(old.job_id) is None
