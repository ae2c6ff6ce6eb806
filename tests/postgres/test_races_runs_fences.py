"""Steps and notes against what takes their claim away: recorded before it is gone, or not at all."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from app.domain.errors import LeaseLost
from app.domain.outcome import CancelVerdict, Completed, OutcomeKind, SettleAnswer, Settlement
from app.domain.state import State
from app.domain.step import NewNotes, StepKind
from tests.conformance.runs import a_step, enlist, steps
from tests.conformance.versions import diverged, handed_back, publish
from tests.postgres.arena import Arena
from tests.support.drivers import LEASE, new_id

pytestmark = pytest.mark.postgres


async def test_a_cancel_behind_a_step_keeps_it(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as worker:
        assert await worker.driver.record_step(held.token, a_step())
        cancelling = await arena.start(lambda seat: seat.driver.cancel(held.token.job_id, reason="no"))
        await cancelling.is_blocked_by(worker)
        await worker.commit()
    assert await cancelling.result() is CancelVerdict.SIGNALLED
    assert await steps(arena, held.token.job_id) == ["load"]


async def test_a_step_behind_a_cancel_is_not_recorded(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as operator:
        await operator.driver.cancel(held.token.job_id, reason="no")
        recording = await arena.start(lambda seat: seat.driver.record_step(held.token, a_step()))
        await recording.is_blocked_by(operator)
        await operator.commit()
    assert await recording.result() is False
    assert await steps(arena, held.token.job_id) == []


async def test_a_step_behind_a_cancel_that_rolls_back_is_recorded(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as operator:
        await operator.driver.cancel(held.token.job_id, reason="no")
        recording = await arena.start(lambda seat: seat.driver.record_step(held.token, a_step()))
        await recording.is_blocked_by(operator)
        await operator.rollback()
    assert await recording.result() is True


async def test_a_step_behind_a_reap_is_not_recorded(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as reaper:
        await arena.advance(LEASE)
        assert len(await reaper.driver.reap()) == 1
        # By the clock of the step's statement, which began earlier, the lease lasts.
        await arena.advance(-LEASE)
        recording = await arena.start(lambda seat: seat.driver.record_step(held.token, a_step()))
        await recording.is_blocked_by(reaper)
        await reaper.commit()
    assert await recording.result() is False
    assert await steps(arena, held.token.job_id) == []


async def test_a_reap_passes_over_a_claim_whose_step_is_being_recorded(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as worker:
        assert await worker.driver.record_step(held.token, a_step())
        await arena.vanish()
        assert await arena.at_once(lambda seat: seat.driver.reap()) == ()
        await worker.commit()
    (reaped,) = await arena.driver.reap()
    assert reaped.outcome is OutcomeKind.CRASHED
    assert await steps(arena, held.token.job_id) == ["load"]


async def test_a_settle_waits_for_a_step_of_its_claim(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as body:
        assert await body.driver.record_step(held.token, a_step())
        settling = await arena.start(
            lambda seat: seat.driver.settle([Settlement(token=held.token, outcome=Completed())])
        )
        await settling.is_blocked_by(body)
        await body.commit()
    assert await settling.result() == (SettleAnswer.SETTLED,)
    assert await steps(arena, held.token.job_id) == ["load"]


async def test_steps_of_one_claim_do_not_wait_for_each_other(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as body:
        assert await body.driver.record_step(held.token, a_step())
        assert await arena.at_once(lambda seat: seat.driver.record_step(held.token, a_step("other", 1)))
        await body.commit()
    assert sorted(await steps(arena, held.token.job_id)) == ["load", "other"]


async def test_a_step_recorded_twice_at_once_is_one(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as first:
        assert await first.driver.record_step(held.token, a_step(value="1"))
        again = await arena.start(lambda seat: seat.driver.record_step(held.token, a_step(value="2")))
        await again.is_blocked_by(first)
        await first.commit()
    assert await again.result() is True
    (step,) = (await arena.driver.history(held.token.job_id, held.run_id)).steps
    assert step.value == "1"


async def test_a_renewal_does_not_wait_for_a_step(arena: Arena) -> None:
    worker = await arena.register()
    held = await arena.running(worker)
    async with arena.holding() as body:
        assert await body.driver.record_step(held.token, a_step())
        assert (await arena.at_once(lambda seat: seat.renew(worker, [held.token]))).is_held
        await body.commit()


async def test_notes_behind_a_cancel_are_not_kept(arena: Arena) -> None:
    held = await arena.running()
    notes = [NewNotes(held.token, ("line",), (0.5, None))]
    async with arena.holding() as operator:
        await operator.driver.cancel(held.token.job_id, reason="no")
        noting = await arena.start(lambda seat: seat.driver.note(notes))
        await noting.is_blocked_by(operator)
        await operator.commit()
    assert await noting.result() == 0
    view = await arena.driver.run(held.token.job_id)
    assert view is not None
    assert (view.lines, view.progress) == ((), None)


# --- the step that commits with the caller's writes


async def _book(arena: Arena, held: object, reached: asyncio.Event, go_on: asyncio.Event) -> None:
    token = held.token  # type: ignore[attr-defined] # a claimed job
    async with arena.driver.step_transaction(token, a_step("book", kind=StepKind.TRANSACTION)) as session:
        await session.execute(text("insert into booked values (1)"))
        reached.set()
        await go_on.wait()


@pytest.mark.parametrize("way", ["cancel", "reap"])
async def test_a_transaction_whose_claim_went_while_its_body_ran_writes_nothing(arena: Arena, way: str) -> None:
    await arena.execute("create table booked(n int)")
    held = await arena.running()
    reached, go_on = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        booking = group.create_task(_outcome(_book(arena, held, reached, go_on)))
        await reached.wait()
        if way == "cancel":
            assert await arena.driver.cancel(held.token.job_id, reason="no") is CancelVerdict.SIGNALLED
        else:
            await arena.vanish()
            assert len(await arena.driver.reap()) == 1
        go_on.set()
    assert isinstance(booking.result(), LeaseLost)
    assert await arena.fetch("select * from booked") == []
    assert await steps(arena, held.token.job_id) == []


async def test_a_transaction_behind_a_cancel_that_rolls_back_is_committed_whole(arena: Arena) -> None:
    await arena.execute("create table booked(n int)")
    held = await arena.running()
    reached, go_on = asyncio.Event(), asyncio.Event()
    go_on.set()
    async with asyncio.TaskGroup() as group, arena.holding() as operator:
        await operator.driver.cancel(held.token.job_id, reason="no")
        booking = group.create_task(_outcome(_book(arena, held, reached, go_on)))
        await reached.wait()
        await _somebody_waits_for(arena, operator.pid)
        await operator.rollback()
    assert booking.result() is None
    assert len(await arena.fetch("select * from booked")) == 1
    assert await steps(arena, held.token.job_id) == ["book"]


async def _outcome(work: object) -> BaseException | None:
    try:
        await work  # type: ignore[misc] # a coroutine
    except Exception as error:  # noqa: BLE001  looked at by the test
        return error
    return None


async def _somebody_waits_for(arena: Arena, pid: int) -> None:
    async with asyncio.timeout(10):
        while not await arena.fetch("select pid from pg_stat_activity where $1 = any(pg_blocking_pids(pid))", pid):
            pass


# --- handed back


async def test_a_hand_back_behind_a_cancel_stores_nothing(arena: Arena) -> None:
    new = await enlist(arena, code_version="new")
    await enlist(arena, code_version="old")
    await publish(arena, "old")
    held = await arena.running(new)
    async with arena.holding() as operator:
        await operator.driver.cancel(held.token.job_id, reason="no")
        handing = await arena.start(lambda seat: seat.driver.settle([Settlement(token=held.token, outcome=diverged())]))
        await handing.is_blocked_by(operator)
        await operator.commit()
    assert await handing.result() == (SettleAnswer.CANCELLED,)
    assert await arena.bucket(held.token.job_id) == "finished"


async def test_a_release_passes_over_a_job_that_its_version_is_claiming(arena: Arena) -> None:
    held, old, _ = await handed_back(arena)
    async with arena.holding() as claiming:
        await publish(claiming, "old")
        await claiming.claim_one(old)
        await arena.driver.close_worker(old)
        assert await arena.at_once(lambda seat: seat.driver.release_due()) == 0
        await claiming.commit()
    assert await arena.bucket(held.token.job_id) == "running"


async def test_two_releases_hold_a_job_once(arena: Arena) -> None:
    held, old, _ = await handed_back(arena)
    await arena.driver.close_worker(old)
    async with arena.holding() as first:
        assert await first.driver.release_due() == 1
        assert await arena.at_once(lambda seat: seat.driver.release_due()) == 0
        await first.commit()
    assert (await arena.describe(held.token.job_id)).state is State.HELD


async def test_a_fork_repeated_while_the_first_is_under_way_makes_one_job(arena: Arena) -> None:
    held = await arena.running()
    assert await arena.driver.record_step(held.token, a_step())
    forked = new_id()
    async with arena.holding(isolation="repeatable_read") as first:
        made = await first.driver.fork(held.token.job_id, new_id=forked)
        again = await arena.start(lambda seat: seat.driver.fork(held.token.job_id, new_id=forked))
        await again.is_blocked_by(first)
        await first.commit()
    assert await again.result() == made
    assert await steps(arena, forked) == ["load"]
