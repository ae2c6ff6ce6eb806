"""Wakes and cancels against suspends and emits: a run is woken once, or cancelled with all it waits for."""

from __future__ import annotations

import pytest

from app.domain.outcome import CancelVerdict, SettleAnswer
from app.domain.state import State
from tests.conformance.runs import (
    HOUR,
    a_call,
    a_child,
    a_sleep,
    an_event,
    called,
    claim_child,
    emit,
    enlist,
    known,
    order,
    steps,
    suspended,
    the_wait,
    waits,
)
from tests.postgres.arena import Arena
from tests.postgres.test_races_runs import suspend

pytestmark = pytest.mark.postgres


async def test_two_wakes_end_every_wait_once_without_waiting(arena: Arena) -> None:
    worker = await enlist(arena)
    runs = [(await suspended(arena, a_sleep(), worker=worker)).token.job_id for _ in range(4)]
    await arena.advance(HOUR)
    async with arena.holding() as first:
        assert await first.driver.wake(batch=2) == 2
        assert await arena.at_once(lambda seat: seat.driver.wake()) == 2
        await first.commit()
    assert [await arena.bucket(job_id) for job_id in runs] == ["ready"] * 4
    assert [await steps(arena, job_id) for job_id in runs] == [["nap"]] * 4


async def test_a_wake_passes_over_a_wait_that_a_suspend_repeats(arena: Arena) -> None:
    """Otherwise it would record the step and leave the run suspended, with nothing to wait for."""
    held = await suspended(arena, an_event(), a_sleep(number=1))
    await emit(arena)
    again = await arena.claim_one(await enlist(arena))
    async with arena.holding() as worker:
        assert await suspend(worker, again, known(a_sleep())) is SettleAnswer.SETTLED
        await arena.advance(HOUR)
        assert await arena.at_once(lambda seat: seat.driver.wake()) == 0
        await worker.commit()
    assert await arena.bucket(held.token.job_id) == "suspended"
    assert await arena.driver.wake() == 1
    assert await arena.bucket(held.token.job_id) == "ready"


async def test_a_suspend_behind_a_wake_of_its_wait_is_ready_at_once(arena: Arena) -> None:
    held = await suspended(arena, an_event(), a_sleep(number=1))
    await emit(arena)
    again = await arena.claim_one(await enlist(arena))
    await arena.advance(HOUR)
    async with arena.holding() as waking:
        assert await waking.driver.wake() == 1
        suspending = await arena.start(lambda seat: suspend(seat, again, known(a_sleep())))
        await suspending.is_blocked_by(waking)
        await waking.commit()
    assert await suspending.result() is SettleAnswer.SETTLED
    assert await arena.bucket(held.token.job_id) == "ready"


async def test_a_cancel_behind_a_wake_takes_the_run_from_the_queue(arena: Arena) -> None:
    held = await suspended(arena, a_sleep())
    await arena.advance(HOUR)
    async with arena.holding() as waking:
        assert await waking.driver.wake() == 1
        cancelling = await arena.start(lambda seat: seat.driver.cancel(held.token.job_id, reason="no"))
        await cancelling.is_blocked_by(waking)
        await waking.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await arena.bucket(held.token.job_id) == "finished"
    assert await waits(arena, held.token.job_id) == []


async def test_a_wake_passes_over_a_run_that_is_being_cancelled(arena: Arena) -> None:
    held = await suspended(arena, a_sleep())
    await arena.advance(HOUR)
    async with arena.holding() as operator:
        await operator.driver.cancel(held.token.job_id, reason="no")
        assert await arena.at_once(lambda seat: seat.driver.wake()) == 0
        await operator.commit()
    assert await arena.bucket(held.token.job_id) == "finished"
    assert (await steps(arena, held.token.job_id), await waits(arena, held.token.job_id)) == ([], [])


async def test_a_cancel_behind_a_suspend_takes_all_it_waits_for_along(arena: Arena) -> None:
    worker = await enlist(arena)
    parent = await arena.running(worker)
    child = a_child(parent)
    async with arena.holding() as suspending:
        await suspend(suspending, parent, a_call(child), a_sleep(number=1))
        cancelling = await arena.start(lambda seat: seat.driver.cancel(parent.token.job_id, reason="no"))
        await cancelling.is_blocked_by(suspending)
        await suspending.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await waits(arena, parent.token.job_id) == []
    assert (await arena.describe(child.id)).state is State.CANCELLED


async def test_a_suspend_behind_a_cancel_stores_nothing(arena: Arena) -> None:
    worker = await enlist(arena)
    parent = await arena.running(worker)
    child = a_child(parent)
    async with arena.holding() as operator:
        await operator.driver.cancel(parent.token.job_id, reason="no")
        suspending = await arena.start(lambda seat: suspend(seat, parent, a_call(child)))
        await suspending.is_blocked_by(operator)
        await operator.commit()
    assert await suspending.result() is SettleAnswer.CANCELLED
    assert await waits(arena, parent.token.job_id) == []
    assert await arena.driver.describe(child.id) is None


async def test_an_emit_behind_the_cancel_of_one_waiter_wakes_the_others(arena: Arena) -> None:
    worker = await enlist(arena)
    gone, *others = [(await suspended(arena, an_event(), worker=worker)).token.job_id for _ in range(3)]
    async with arena.holding() as operator:
        await operator.driver.cancel(gone, reason="no")
        emitting = await arena.start(emit)
        await emitting.is_blocked_by(operator)
        await operator.commit()
    assert (await emitting.result()).matched == 2
    assert await order(arena, worker) == others
    assert await arena.bucket(gone) == "finished"


async def test_a_cancel_behind_an_emit_waits_for_it(arena: Arena) -> None:
    held = await suspended(arena, an_event())
    async with arena.holding() as producer:
        assert (await emit(producer)).matched == 1
        cancelling = await arena.start(lambda seat: seat.driver.cancel(held.token.job_id, reason="no"))
        await cancelling.is_blocked_by(producer)
        await producer.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await arena.bucket(held.token.job_id) == "finished"


async def test_a_parents_cancel_waits_for_the_claim_of_its_child(arena: Arena) -> None:
    worker = await enlist(arena)
    parent = await arena.running(worker)
    child = a_child(parent)
    await suspend(arena, parent, a_call(child))
    async with arena.holding() as claiming:
        await claim_child(claiming, worker, child.id)
        cancelling = await arena.start(lambda seat: seat.driver.cancel(parent.token.job_id, reason="no"))
        await cancelling.is_blocked_by(claiming)
        await claiming.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await arena.bucket(child.id) == "finished"


async def test_a_failed_child_wakes_its_parent_and_stays_seen(arena: Arena) -> None:
    parent, child = await called(arena)
    async with arena.holding() as operator:
        await operator.driver.cancel(child.token.job_id, reason="no")
        # The child's end is told after the commit; here it is part of the cancel's transaction.
        assert await arena.bucket(parent.token.job_id) == "suspended"
        await operator.commit()
    assert await arena.bucket(parent.token.job_id) == "ready"
    assert (await the_wait(arena, parent.token.job_id)).child_state is State.CANCELLED
