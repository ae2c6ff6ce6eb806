"""The verbs beside the eight: surrender, release, expire and enqueue where they meet them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outcome import CancelVerdict, Completed, OutcomeKind, SettleAnswer, Settlement
from app.domain.state import State
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import new_job

pytestmark = pytest.mark.postgres


async def test_a_surrender_leaves_to_a_reaper_what_it_took_and_takes_the_rest(arena: Arena) -> None:
    worker = await arena.register()
    first, second = (await arena.running(worker)).token, (await arena.running(worker)).token
    await arena.vanish()
    async with arena.holding() as reaper:
        (reaped,) = await reaper.driver.reap(batch=1)
        surrendering = await arena.start(lambda seat: seat.driver.surrender(worker))
        await surrendering.is_blocked_by(reaper)
        await reaper.commit()
    (surrendered,) = await surrendering.result()
    assert (reaped.job_id, reaped.outcome) == (first.job_id, OutcomeKind.CRASHED)
    assert (surrendered.job_id, surrendered.outcome) == (second.job_id, OutcomeKind.LEASE_LOST)
    crashes = [(await arena.describe(token.job_id)).counters.crashes for token in (first, second)]
    assert crashes == [1, 0]
    assert await arena.driver.reap() == ()


async def test_a_reap_passes_over_what_is_being_surrendered(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    await arena.vanish()
    async with arena.holding() as loser:
        assert len(await loser.driver.surrender(worker)) == 1
        assert await arena.at_once(lambda seat: seat.driver.reap()) == ()
        await loser.commit()
    assert [row.outcome for row in await arena.ledger(token.job_id)] == [OutcomeKind.LEASE_LOST]
    assert await arena.bucket(token.job_id) == "ready"


async def test_a_surrender_behind_a_settle_leaves_it_settled(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed())
        surrendering = await arena.start(lambda seat: seat.driver.surrender(worker))
        await surrendering.is_blocked_by(settler)
        await settler.commit()
    assert await surrendering.result() == ()
    assert (await arena.describe(token.job_id)).state is State.DONE


async def test_a_settle_and_a_surrender_lock_claims_in_the_order_of_their_ids(arena: Arena) -> None:
    worker = await arena.register()
    first, second = await arena.enqueue(priority=9), await arena.enqueue(priority=0)
    # Claimed the other way round: the second's row lies before the first's in the table.
    tokens = {job.token.job_id: job.token for job in (await arena.claim_one(worker), await arena.claim_one(worker))}
    assert list(tokens) == [second, first]
    both = [Settlement(token=tokens[job_id], outcome=Completed()) for job_id in (first, second)]
    async with arena.holding() as gate:
        await gate.connection.execute("select from outlast.running where job_id = $1 for update", first)
        settling = await arena.start(lambda seat: seat.driver.settle(both))
        await settling.is_blocked_by(gate)
        surrendering = await arena.start(lambda seat: seat.driver.surrender(worker))
        await surrendering.is_blocked_by(settling.seat)
        free = await arena.fetch("select job_id from outlast.running for update skip locked")
        await gate.rollback()
    assert [row[0] for row in free] == [second]
    assert await settling.result() == (SettleAnswer.SETTLED, SettleAnswer.SETTLED)
    assert await surrendering.result() == ()


async def test_a_settle_and_an_abandon_lock_claims_in_the_order_of_their_ids(arena: Arena) -> None:
    """The abandon is given them the other way round, and so do they lie in the table."""
    worker = await arena.register()
    first, second = await arena.enqueue(priority=9), await arena.enqueue(priority=0)
    tokens = [job.token for job in (await arena.claim_one(worker), await arena.claim_one(worker))]
    assert [token.job_id for token in tokens] == [second, first]

    async def abandon(seat: Seat) -> int:
        # Left to itself, the server may read them in either order.
        for name, value in (("indexscan", "off"), ("bitmapscan", "off"), ("seqscan", "on")):
            await seat.connection.execute(f"set enable_{name} = {value}")
        return await seat.abandon(worker, tokens)

    async with arena.holding() as settler:
        await settler.close_attempt(tokens[1], Completed())
        abandoning = await arena.start(abandon)
        await abandoning.is_blocked_by(settler)
        free = await arena.fetch("select job_id from outlast.running for update skip locked")
        await settler.commit()
    assert [row[0] for row in free] == [second]
    assert await abandoning.result() == 1
    assert (await arena.describe(first)).state is State.DONE


async def test_a_surrender_waits_for_its_workers_row_before_it_locks_a_claim(arena: Arena) -> None:
    worker = await arena.register()
    tokens = [(await arena.running(worker)).token for _ in range(2)]
    async with arena.holding() as heart:
        assert (await heart.renew(worker, tokens)).is_held
        surrendering = await arena.start(lambda seat: seat.driver.surrender(worker))
        await surrendering.is_blocked_by(heart)
        free = await arena.fetch("select job_id from outlast.running for update skip locked")
        await heart.commit()
    assert len(free) == 2
    assert len(await surrendering.result()) == 2


async def test_a_renewal_behind_a_surrender_is_refused(arena: Arena) -> None:
    worker = await arena.register()
    async with arena.holding() as loser:
        await loser.driver.surrender(worker)
        renewing = await arena.start(lambda seat: seat.renew(worker))
        await renewing.is_blocked_by(loser)
        await loser.commit()
    assert not (await renewing.result()).is_held


async def test_a_cancel_behind_a_release_finds_the_job_ready_again(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as releaser:
        assert await releaser.driver.release([token], cause="drain") == 1
        cancelling = await arena.start(lambda seat: seat.driver.cancel(token.job_id, reason="late"))
        await cancelling.is_blocked_by(releaser)
        await releaser.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await arena.bucket(token.job_id) == "finished"


async def test_a_settle_behind_a_release_stores_nothing(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as releaser:
        assert await releaser.driver.release([token], cause="drain") == 1
        settling = await arena.start(lambda seat: seat.settle(token, Completed()))
        await settling.is_blocked_by(releaser)
        await releaser.commit()
    assert await settling.result() is SettleAnswer.REAPED
    assert await arena.bucket(token.job_id) == "ready"


async def test_an_expire_passes_over_what_is_being_claimed_and_leaves_it_to_its_worker(arena: Arena) -> None:
    job_id = await arena.enqueue(max_queue_time=timedelta(seconds=1))
    worker = await arena.register()
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        assert await arena.at_once(lambda seat: seat.driver.expire()) == ()
        await claimer.commit()
    assert await arena.driver.expire() == ()
    assert await arena.bucket(job_id) == "running"
    assert len(await arena.fetch("select from outlast.expiry")) == 1, "its claim may yet be handed back"


async def test_a_cancel_behind_an_expire_finds_the_job_finished(arena: Arena) -> None:
    job_id = await arena.enqueue(deadline=timedelta(seconds=1), key="k")
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as expirer:
        assert len(await expirer.driver.expire()) == 1
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="late"))
        await cancelling.is_blocked_by(expirer)
        await expirer.commit()
    assert await cancelling.result() is CancelVerdict.ALREADY_FINISHED
    view = await arena.describe(job_id)
    assert (view.state, view.state_reason) == (State.DEAD, "deadline")
    assert await arena.key_holder("k") is None


async def test_a_promote_passes_over_what_is_being_expired(arena: Arena) -> None:
    job_id = await arena.enqueue(deadline=timedelta(seconds=1), delay=timedelta(seconds=1))
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as expirer:
        assert len(await expirer.driver.expire()) == 1
        assert await arena.at_once(lambda seat: seat.driver.promote()) == 0
        await expirer.commit()
    assert await arena.bucket(job_id) == "finished"


async def test_an_enqueue_during_a_settle_is_answered_with_the_job_that_ends(arena: Arena) -> None:
    token = (await arena.running(key="k")).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed())
        answer = await arena.at_once(lambda seat: seat.driver.enqueue(new_job(key="k")))
        await settler.commit()
    assert (answer.id, answer.deduped) == (token.job_id, True)
    assert await arena.key_holder("k") is None


async def test_an_enqueue_behind_a_retry_is_answered_with_the_retried_job(arena: Arena) -> None:
    job_id = await arena.enqueue(key="k", fingerprint=7)
    await arena.driver.cancel(job_id, reason="first")
    async with arena.holding() as operator:
        await operator.driver.retry(job_id)
        enqueueing = await arena.start(lambda seat: seat.driver.enqueue(new_job(key="k", fingerprint=7)))
        await enqueueing.is_blocked_by(operator)
        await operator.commit()
    answer = await enqueueing.result()
    assert (answer.id, answer.deduped) == (job_id, True)
    assert await arena.key_holder("k") == job_id
