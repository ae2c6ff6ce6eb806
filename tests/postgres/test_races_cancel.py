"""Cancel against the verbs after it: it waits for who moves the token, looks again, and takes nothing for granted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import JobStateConflict
from app.domain.outcome import CancelVerdict, OutcomeKind, Retried, SettleAnswer
from app.domain.snapshot import Revocation
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena
from tests.support.drivers import ERROR

pytestmark = pytest.mark.postgres

CANCELLED_LONG_AGO = PurgeQuery(state=State.CANCELLED, older_than=timedelta(seconds=1))


async def test_of_two_cancels_the_second_waits_and_finds_the_job_finished(arena: Arena) -> None:
    job_id = await arena.enqueue(key="k")
    async with arena.holding() as first:
        assert await first.driver.cancel(job_id, reason="first") is CancelVerdict.CANCELLED_BEFORE_START
        second = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="second"))
        await second.is_blocked_by(first)
        await first.commit()
    assert await second.result() is CancelVerdict.ALREADY_FINISHED
    assert (await arena.describe(job_id)).state_reason == "first"
    assert await arena.key_holder("k") is None
    assert await arena.bucket(job_id) == "finished"


async def test_a_cancel_behind_a_reap_finds_the_job_ready_again(arena: Arena) -> None:
    token = (await arena.running()).token
    await arena.vanish()
    async with arena.holding() as reaper:
        assert len(await reaper.driver.reap()) == 1
        cancelling = await arena.start(lambda seat: seat.driver.cancel(token.job_id, reason="late"))
        await cancelling.is_blocked_by(reaper)
        await reaper.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await arena.bucket(token.job_id) == "finished"
    assert [row.outcome for row in await arena.ledger(token.job_id)] == [OutcomeKind.CRASHED]


async def test_a_reap_passes_over_what_is_being_cancelled(arena: Arena) -> None:
    token = (await arena.running()).token
    await arena.vanish()
    async with arena.holding() as canceller:
        assert await canceller.driver.cancel(token.job_id, reason="first") is CancelVerdict.SIGNALLED
        assert await arena.at_once(lambda seat: seat.driver.reap()) == ()
        await canceller.commit()
    assert await arena.driver.reap() == ()
    view = await arena.describe(token.job_id)
    assert (view.state, view.counters.crashes, view.last_outcome) == (State.CANCELLED, 0, OutcomeKind.CANCELLED)


async def test_a_renewal_learns_of_a_cancel_once_it_is_committed(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    async with arena.holding() as canceller:
        assert await canceller.driver.cancel(token.job_id, reason="first") is CancelVerdict.SIGNALLED
        before = await arena.at_once(lambda seat: seat.renew(worker, [token]))
        await canceller.commit()
    after = await arena.renew(worker, [token])
    assert (before.is_held, before.revoked) == (True, ())
    assert (after.is_held, after.revoked) == (True, (Revocation(token=token, by=SettleAnswer.CANCELLED),))


async def test_a_cancel_during_a_retry_sees_the_job_as_it_was_before_it(arena: Arena) -> None:
    job_id = await arena.enqueue()
    await arena.driver.cancel(job_id, reason="first")
    async with arena.holding() as operator:
        await operator.driver.retry(job_id)
        verdict = await arena.at_once(lambda seat: seat.driver.cancel(job_id, reason="second"))
        await operator.commit()
    assert verdict is CancelVerdict.ALREADY_FINISHED
    assert await arena.bucket(job_id) == "ready"
    assert await arena.driver.cancel(job_id, reason="third") is CancelVerdict.CANCELLED_BEFORE_START


async def test_a_retry_during_a_cancel_is_refused_with_the_state_before_it(arena: Arena) -> None:
    job_id = await arena.enqueue()
    async with arena.holding() as canceller:
        await canceller.driver.cancel(job_id, reason="first")
        with pytest.raises(JobStateConflict) as refused:
            await arena.at_once(lambda seat: seat.driver.retry(job_id))
        await canceller.commit()
    assert refused.value.details["state"] == State.READY
    assert await arena.bucket(job_id) == "finished"


async def test_a_retry_behind_a_cancel_wins_the_key_the_cancel_frees(arena: Arena) -> None:
    dead = await arena.enqueue(key="k")
    await arena.driver.cancel(dead, reason="first")
    holder = await arena.enqueue(key="k")
    async with arena.holding() as canceller:
        await canceller.driver.cancel(holder, reason="second")
        retrying = await arena.start(lambda seat: seat.driver.retry(dead))
        await retrying.is_blocked_by(canceller)
        await canceller.commit()
    await retrying.result()
    assert await arena.key_holder("k") == dead
    assert (await arena.bucket(dead), await arena.bucket(holder)) == ("ready", "finished")


async def test_a_cancel_behind_a_promote_finds_the_job_ready(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=timedelta(seconds=1))
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="late"))
        await cancelling.is_blocked_by(promoter)
        await promoter.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_BEFORE_START
    assert await arena.bucket(job_id) == "finished"


async def test_a_promote_passes_over_what_is_being_cancelled(arena: Arena) -> None:
    token = (await arena.running()).token
    await arena.close_attempt(token, Retried(error=ERROR, delay=timedelta(seconds=1)))
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as canceller:
        verdict = await canceller.driver.cancel(token.job_id, reason="first")
        assert await arena.at_once(lambda seat: seat.driver.promote()) == 0
        await canceller.commit()
    assert verdict is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await arena.driver.promote() == 0
    assert await arena.bucket(token.job_id) == "finished"


async def test_a_cancel_during_a_purge_sees_the_job_as_it_was_before_it(arena: Arena) -> None:
    job_id = await arena.enqueue()
    await arena.driver.cancel(job_id, reason="first")
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as purger:
        assert await purger.driver.purge(CANCELLED_LONG_AGO) == 1
        verdict = await arena.at_once(lambda seat: seat.driver.cancel(job_id, reason="second"))
        await purger.commit()
    assert verdict is CancelVerdict.ALREADY_FINISHED
    assert await arena.driver.describe(job_id) is None


async def test_a_purge_does_not_see_a_cancelled_job_before_its_commit(arena: Arena) -> None:
    token = (await arena.running()).token
    await arena.close_attempt(token, Retried(error=ERROR, delay=timedelta(minutes=1)))
    async with arena.holding() as canceller:
        await canceller.driver.cancel(token.job_id, reason="first")
        await arena.advance(timedelta(seconds=2))
        assert await arena.at_once(lambda seat: seat.driver.purge(CANCELLED_LONG_AGO)) == 0
        await canceller.commit()
    assert await arena.driver.purge(CANCELLED_LONG_AGO) == 1
    assert await arena.ledger(token.job_id) == ()
