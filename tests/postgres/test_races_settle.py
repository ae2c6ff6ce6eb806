"""Settle against the verbs after it: whoever locks the running row first has the claim, the other is told."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import JobDuplicate, JobStateConflict
from app.domain.outcome import CancelVerdict, Completed, DeadLettered, OutcomeKind, Retried, SettleAnswer, Settlement
from app.domain.state import DeadReason, State
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena
from tests.support.drivers import ERROR

pytestmark = pytest.mark.postgres

DEAD = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)


async def test_of_two_settles_of_one_claim_the_second_waits_and_stores_nothing(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as first:
        await first.close_attempt(token, Completed(result='"one"'))
        second = await arena.start(lambda seat: seat.settle(token, DEAD))
        await second.is_blocked_by(first)
        await first.commit()
    assert await second.result() is not SettleAnswer.SETTLED
    view = await arena.describe(token.job_id)
    assert (view.state, view.result, view.counters.attempt) == (State.DONE, '"one"', 1)
    assert await arena.bucket(token.job_id) == "finished"


async def test_a_settle_behind_one_that_rolled_back_is_stored(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as first:
        await first.close_attempt(token, Completed())
        second = await arena.start(lambda seat: seat.settle(token, DEAD))
        await second.is_blocked_by(first)
        await first.rollback()
    assert await second.result() is SettleAnswer.SETTLED
    assert (await arena.describe(token.job_id)).state is State.DEAD


async def test_a_cancel_behind_a_settle_finds_the_job_finished(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed(result='"kept"'))
        cancelling = await arena.start(lambda seat: seat.driver.cancel(token.job_id, reason="late"))
        await cancelling.is_blocked_by(settler)
        await settler.commit()
    assert await cancelling.result() is CancelVerdict.ALREADY_FINISHED
    assert (await arena.describe(token.job_id)).result == '"kept"'


async def test_a_cancel_behind_a_retrying_settle_takes_the_waiting_job(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Retried(error=ERROR, delay=timedelta(minutes=1)))
        cancelling = await arena.start(lambda seat: seat.driver.cancel(token.job_id, reason="late"))
        await cancelling.is_blocked_by(settler)
        await settler.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await arena.bucket(token.job_id) == "finished"
    assert [row.outcome for row in await arena.ledger(token.job_id)] == [OutcomeKind.RETRIED]


async def test_a_settle_behind_a_cancel_is_superseded_by_it(arena: Arena) -> None:
    token = (await arena.running(key="k")).token
    async with arena.holding() as canceller:
        assert await canceller.driver.cancel(token.job_id, reason="first") is CancelVerdict.SIGNALLED
        settling = await arena.start(lambda seat: seat.settle(token, Completed()))
        await settling.is_blocked_by(canceller)
        await canceller.commit()
    assert await settling.result() is SettleAnswer.CANCELLED
    view = await arena.describe(token.job_id)
    assert (view.state, view.state_reason, view.counters.attempt) == (State.CANCELLED, "first", 0)
    assert await arena.key_holder("k") is None


async def test_a_reap_passes_over_a_claim_that_is_being_settled(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed())
        await arena.vanish()
        assert await arena.at_once(lambda seat: seat.driver.reap()) == ()
        await settler.commit()
    assert await arena.driver.reap() == ()
    assert (await arena.describe(token.job_id)).state is State.DONE
    assert await arena.bucket(token.job_id) == "finished"


async def test_a_settle_behind_a_reap_is_superseded_by_it(arena: Arena) -> None:
    worker = await arena.register()
    first, second = (await arena.running(worker)).token, (await arena.running(worker)).token
    # Held up at the first claim, the settle has judged the lease before it passed and meets the reaper at the second.
    async with arena.holding() as gate, arena.holding() as reaper:
        await gate.connection.execute("select from outlast.running where job_id = $1 for update", first.job_id)
        both = [Settlement(token=token, outcome=Completed()) for token in (first, second)]
        settling = await arena.start(lambda seat: seat.driver.settle(both))
        await settling.is_blocked_by(gate)
        await arena.vanish()
        (reaped,) = await reaper.driver.reap()
        await gate.rollback()
        await settling.is_blocked_by(reaper)
        await reaper.commit()
    assert await settling.result() == (SettleAnswer.SETTLED, SettleAnswer.REAPED)
    assert (reaped.job_id, reaped.outcome) == (second.job_id, OutcomeKind.CRASHED)
    assert await arena.bucket(first.job_id) == "finished"
    assert await arena.bucket(second.job_id) == "ready"
    assert await arena.driver.reap() == ()


async def test_a_settle_and_a_renewal_of_one_worker_do_not_wait_for_each_other(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed())
        renewal = await arena.at_once(lambda seat: seat.renew(worker, [token]))
        await settler.commit()
    assert renewal.is_held
    assert renewal.revoked == ()


async def test_a_retry_behind_a_settle_wins_the_key_the_settle_frees(arena: Arena) -> None:
    dead = await arena.enqueue(key="k")
    await arena.driver.cancel(dead, reason="wrong order")
    token = (await arena.running(key="k")).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed())
        retrying = await arena.start(lambda seat: seat.driver.retry(dead))
        await retrying.is_blocked_by(settler)
        await settler.commit()
    await retrying.result()
    assert await arena.bucket(dead) == "ready"
    assert await arena.key_holder("k") == dead


async def test_a_retry_behind_a_settle_that_rolls_back_is_refused_and_stays_dead(arena: Arena) -> None:
    dead = await arena.enqueue(key="k")
    await arena.driver.cancel(dead, reason="wrong order")
    token = (await arena.running(key="k")).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed())
        retrying = await arena.start(lambda seat: seat.driver.retry(dead))
        await retrying.is_blocked_by(settler)
        await settler.rollback()
    with pytest.raises(JobDuplicate) as refused:
        await retrying.result()
    assert refused.value.details["existing_id"] == token.job_id
    assert await arena.bucket(dead) == "finished"
    assert await arena.key_holder("k") == token.job_id


async def test_a_retry_does_not_see_a_death_before_its_commit(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, DEAD)
        with pytest.raises(JobStateConflict) as refused:
            await arena.at_once(lambda seat: seat.driver.retry(token.job_id))
        await settler.commit()
    assert refused.value.details["state"] == State.RUNNING
    assert await arena.bucket(token.job_id) == "finished"


async def test_a_promote_does_not_see_what_a_settle_puts_to_wait_before_its_commit(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as settler:
        await settler.close_attempt(token, Retried(error=ERROR, delay=timedelta(seconds=1)))
        await arena.advance(timedelta(seconds=2))
        assert await arena.at_once(lambda seat: seat.driver.promote()) == 0
        await settler.commit()
    assert await arena.driver.promote() == 1
    assert await arena.bucket(token.job_id) == "ready"


async def test_a_purge_does_not_see_what_a_settle_finished_before_its_commit(arena: Arena) -> None:
    token = (await arena.running()).token
    query = PurgeQuery(state=State.DONE, older_than=timedelta(seconds=1))
    async with arena.holding() as settler:
        await settler.close_attempt(token, Completed())
        await arena.advance(timedelta(seconds=2))
        assert await arena.at_once(lambda seat: seat.driver.purge(query)) == 0
        await settler.commit()
    assert await arena.driver.purge(query) == 1
    assert await arena.driver.describe(token.job_id) is None
