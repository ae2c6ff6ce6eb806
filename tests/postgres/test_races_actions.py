"""Run now and delete against what moves the same token: whoever comes second looks again, and says what it finds."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.audit import Action
from app.domain.edit import RunNowVerdict
from app.domain.errors import JobNotFound, JobStateConflict
from app.domain.job import JobId
from app.domain.outcome import CancelVerdict, Held
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.conformance.runs import a_sleep, enlist, steps, suspended
from tests.postgres.arena import Arena, Seat
from tests.support.audit import an_entry, outcomes

pytestmark = pytest.mark.postgres

MINUTE = timedelta(minutes=1)
LONG_AGO = PurgeQuery(state=State.CANCELLED, older_than=timedelta(seconds=1))


async def _run_now(seat: Seat, job_id: JobId) -> RunNowVerdict:
    return await seat.driver.run_now(job_id, audit=an_entry(Action.JOB_RUN_NOW, job_id))


async def _delete(seat: Seat, job_id: JobId) -> None:
    await seat.driver.delete(job_id, audit=an_entry(Action.JOB_DELETE, job_id))


async def _cancelled(arena: Arena) -> JobId:
    job_id = await arena.enqueue()
    await arena.driver.cancel(job_id, reason="stop")
    return job_id


async def _held(arena: Arena) -> JobId:
    token = (await arena.running(key="k")).token
    await arena.close_attempt(token, Held(reason="does not fit"))
    return token.job_id


# --- run now


async def test_a_promote_passes_over_what_is_run_now(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    await arena.advance(2 * MINUTE)
    async with arena.holding() as operator:
        assert await _run_now(operator, job_id) is RunNowVerdict.MADE_READY
        assert await arena.at_once(lambda seat: seat.driver.promote()) == 0
        await operator.commit()
    assert await arena.bucket(job_id) == "ready"


async def test_a_run_now_behind_a_promote_finds_the_job_ready(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    await arena.advance(2 * MINUTE)
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        second = await arena.start(lambda seat: _run_now(seat, job_id))
        await second.is_blocked_by(promoter)
        await promoter.commit()
    assert await second.result() is RunNowVerdict.ALREADY_READY
    assert await outcomes(arena.driver, job_id) == [("job.run_now", "unchanged")]


async def test_a_run_now_behind_a_promote_that_rolls_back_makes_the_job_ready(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    await arena.advance(2 * MINUTE)
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        second = await arena.start(lambda seat: _run_now(seat, job_id))
        await second.is_blocked_by(promoter)
        await promoter.rollback()
    assert await second.result() is RunNowVerdict.MADE_READY


async def test_a_cancel_behind_a_run_now_cancels_the_job_where_it_is_ready(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    async with arena.holding() as operator:
        await _run_now(operator, job_id)
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="stop"))
        await cancelling.is_blocked_by(operator)
        await operator.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_BEFORE_START
    assert await arena.bucket(job_id) == "finished"


async def test_a_run_now_behind_a_cancel_is_refused(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    async with arena.holding() as operator:
        await operator.driver.cancel(job_id, reason="stop")
        second = await arena.start(lambda seat: _run_now(seat, job_id))
        await second.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobStateConflict) as refused:
        await second.result()
    assert refused.value.details["state"] == State.CANCELLED
    assert await outcomes(arena.driver, job_id) == []


async def test_of_two_run_nows_the_second_waits_and_finds_the_job_ready(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    async with arena.holding() as first:
        await _run_now(first, job_id)
        second = await arena.start(lambda seat: _run_now(seat, job_id))
        await second.is_blocked_by(first)
        await first.commit()
    assert await second.result() is RunNowVerdict.ALREADY_READY


async def test_an_action_that_rolls_back_leaves_no_row(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    async with arena.holding() as first:
        await _run_now(first, job_id)
        await first.rollback()
    assert await arena.bucket(job_id) == "waiting"
    assert await outcomes(arena.driver, job_id) == []


async def test_a_claim_does_not_see_what_is_run_now_before_its_commit(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    worker = await arena.register()
    async with arena.holding() as operator:
        await _run_now(operator, job_id)
        assert await arena.at_once(lambda seat: seat.claim(worker)) == ()
        await operator.commit()
    assert (await arena.claim_one(worker)).token.job_id == job_id


async def test_a_wake_passes_over_a_sleep_that_an_operator_ends(arena: Arena) -> None:
    held = await suspended(arena, a_sleep(delay=MINUTE))
    await arena.advance(2 * MINUTE)
    async with arena.holding() as operator:
        assert await _run_now(operator, held.token.job_id) is RunNowVerdict.SLEEP_ENDED
        assert await arena.at_once(lambda seat: seat.driver.wake()) == 0
        await operator.commit()
    assert await steps(arena, held.token.job_id) == ["nap"]
    assert await arena.bucket(held.token.job_id) == "ready"


async def test_a_run_now_behind_a_wake_finds_the_run_ready(arena: Arena) -> None:
    held = await suspended(arena, a_sleep(delay=MINUTE))
    await arena.advance(2 * MINUTE)
    async with arena.holding() as waker:
        assert await waker.driver.wake() == 1
        second = await arena.start(lambda seat: _run_now(seat, held.token.job_id))
        await second.is_blocked_by(waker)
        await waker.commit()
    assert await second.result() is RunNowVerdict.ALREADY_READY
    assert len(await steps(arena, held.token.job_id)) == 1


async def test_a_run_now_behind_a_cancel_of_a_sleeping_run_is_refused(arena: Arena) -> None:
    held = await suspended(arena, a_sleep(delay=MINUTE), worker=await enlist(arena))
    async with arena.holding() as operator:
        await operator.driver.cancel(held.token.job_id, reason="stop")
        second = await arena.start(lambda seat: _run_now(seat, held.token.job_id))
        await second.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobStateConflict):
        await second.result()
    assert await arena.bucket(held.token.job_id) == "finished"


async def test_a_run_now_locks_the_sleeps_of_a_run_in_the_order_of_their_names(arena: Arena) -> None:
    """As a cancel does; in the order in which they lie, each of the two might have what the other waits for."""
    held = await suspended(arena, a_sleep("b"), a_sleep("a", 1))
    await arena.fetch("update outlast.wait set due_at = due_at where name = 'a'")  # it lies behind the other now

    async def run_now(seat: Seat) -> RunNowVerdict:
        await seat.connection.execute("set enable_indexscan = off; set enable_seqscan = on")
        return await _run_now(seat, held.token.job_id)

    lock = "select from outlast.wait where job_id = $1 and name = $2 for update nowait"
    async with arena.holding() as gate, arena.holding() as other:
        await gate.connection.execute(lock, held.token.job_id, "a")
        running = await arena.start(run_now)
        await running.is_blocked_by(gate)
        await other.connection.execute(lock, held.token.job_id, "b")
        await other.rollback()
        await gate.rollback()
    assert await running.result() is RunNowVerdict.SLEEP_ENDED


# --- delete


async def test_a_retry_behind_a_delete_finds_no_job(arena: Arena) -> None:
    job_id = await _cancelled(arena)
    async with arena.holding() as operator:
        await _delete(operator, job_id)
        retrying = await arena.start(lambda seat: seat.driver.retry(job_id))
        await retrying.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobNotFound):
        await retrying.result()
    assert await arena.fetch("select from outlast.live_key") == []
    assert await arena.fetch("select from outlast.ready") == []


async def test_a_delete_behind_a_retry_is_refused(arena: Arena) -> None:
    job_id = await _cancelled(arena)
    async with arena.holding() as operator:
        await operator.driver.retry(job_id)
        deleting = await arena.start(lambda seat: _delete(seat, job_id))
        await deleting.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobStateConflict) as refused:
        await deleting.result()
    assert refused.value.details["state"] == State.READY
    assert await arena.bucket(job_id) == "ready"
    assert await outcomes(arena.driver, job_id) == []


async def test_of_two_deletes_the_second_waits_and_finds_no_job(arena: Arena) -> None:
    job_id = await _cancelled(arena)
    async with arena.holding() as first:
        await _delete(first, job_id)
        second = await arena.start(lambda seat: _delete(seat, job_id))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(JobNotFound):
        await second.result()
    assert await outcomes(arena.driver, job_id) == [("job.delete", "done")]


async def test_a_purge_passes_over_what_is_being_deleted(arena: Arena) -> None:
    job_id, other = await _cancelled(arena), await _cancelled(arena)
    await arena.advance(MINUTE)
    async with arena.holding() as operator:
        await _delete(operator, job_id)
        assert await arena.at_once(lambda seat: seat.driver.purge(LONG_AGO)) == 1
        await operator.rollback()
    assert (await arena.describe(job_id)).state is State.CANCELLED
    assert await arena.driver.describe(other) is None


async def test_a_delete_behind_a_purge_finds_no_job(arena: Arena) -> None:
    job_id = await _cancelled(arena)
    await arena.advance(MINUTE)
    async with arena.holding() as purger:
        assert await purger.driver.purge(LONG_AGO) == 1
        deleting = await arena.start(lambda seat: _delete(seat, job_id))
        await deleting.is_blocked_by(purger)
        await purger.commit()
    with pytest.raises(JobNotFound):
        await deleting.result()


async def test_a_delete_behind_a_cancel_of_a_held_job_deletes_what_was_cancelled(arena: Arena) -> None:
    job_id = await _held(arena)
    async with arena.holding() as operator:
        await operator.driver.cancel(job_id, reason="stop")
        deleting = await arena.start(lambda seat: _delete(seat, job_id))
        await deleting.is_blocked_by(operator)
        await operator.commit()
    await deleting.result()
    assert await arena.driver.describe(job_id) is None
    assert await arena.fetch("select from outlast.live_key") == []


async def test_a_cancel_behind_a_delete_of_a_held_job_finds_none(arena: Arena) -> None:
    job_id = await _held(arena)
    async with arena.holding() as operator:
        await _delete(operator, job_id)
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="stop"))
        await cancelling.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobNotFound):
        await cancelling.result()
    assert await arena.fetch("select from outlast.finished") == []


async def test_a_delete_behind_a_release_is_refused(arena: Arena) -> None:
    job_id = await _held(arena)
    async with arena.holding() as operator:
        await operator.driver.release_held(job_id)
        deleting = await arena.start(lambda seat: _delete(seat, job_id))
        await deleting.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobStateConflict):
        await deleting.result()
    assert await arena.key_holder("k") == job_id


async def test_an_enqueue_behind_a_delete_of_a_held_job_takes_its_key(arena: Arena) -> None:
    """It sees the key taken until the delete has committed, and is answered with the job that is going."""
    job_id = await _held(arena)
    async with arena.holding() as operator:
        await _delete(operator, job_id)
        beside = await arena.at_once(lambda seat: seat.enqueue_again(key="k"))
        assert (beside.id, beside.deduped) == (job_id, True)
        await operator.commit()
    assert not (await arena.enqueue_again(key="k")).deduped
