"""A suspend against what ends its waits: whichever comes second sees the other."""

from __future__ import annotations

import pytest

from app.domain.job import ClaimedJob
from app.domain.outcome import Completed, SettleAnswer, Settlement, Suspended
from app.domain.step import NewWait
from tests.conformance.runs import (
    CHILD,
    HOUR,
    a_call,
    a_child,
    a_sleep,
    an_event,
    called,
    emit,
    enlist,
    known,
    steps,
    suspended,
    the_step,
)
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import DriverEnv

pytestmark = pytest.mark.postgres


async def suspend(env: DriverEnv, held: ClaimedJob, *some: NewWait) -> SettleAnswer:
    (answer,) = await env.driver.settle([Settlement(token=held.token, outcome=Suspended(waits=some), has_waits=True)])
    return answer


async def complete(env: DriverEnv, held: ClaimedJob) -> SettleAnswer:
    """Settle as done; a child's parent is told once that is committed, which is `tell`'s."""
    (answer,) = await env.driver.settle([Settlement(token=held.token, outcome=Completed(result="7"))])
    return answer


async def tell(seat: Seat, child: ClaimedJob) -> int:
    """Wake the parents of a child, as its settle does after its commit."""
    from app.drivers.postgres.waits import wake_parents  # noqa: PLC0415 - not a verb of the driver

    driver = seat.driver
    return await wake_parents(driver._db, [child.token.job_id])  # type: ignore[attr-defined] # the part under test


async def test_an_emit_behind_a_suspend_ends_its_wait(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as worker:
        assert await suspend(worker, held, an_event()) is SettleAnswer.SETTLED
        emitting = await arena.start(emit)
        await emitting.is_blocked_by(worker)
        await worker.commit()
    assert (await emitting.result()).matched == 1
    assert await arena.bucket(held.token.job_id) == "ready"
    assert (await the_step(arena, held.token.job_id)).has_event


async def test_an_emit_behind_a_suspend_that_rolls_back_is_found_by_the_next(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as worker:
        await suspend(worker, held, an_event())
        emitting = await arena.start(emit)
        await emitting.is_blocked_by(worker)
        await worker.rollback()
    assert (await emitting.result()).matched == 0
    assert await suspend(arena, held, an_event()) is SettleAnswer.SETTLED
    assert await arena.bucket(held.token.job_id) == "ready"


async def test_a_suspend_behind_an_emit_takes_its_event(arena: Arena) -> None:
    held = await arena.running()
    async with arena.holding() as producer:
        assert (await emit(producer)).matched == 0
        suspending = await arena.start(lambda seat: suspend(seat, held, an_event()))
        await suspending.is_blocked_by(producer)
        await producer.commit()
    assert await suspending.result() is SettleAnswer.SETTLED
    assert await arena.bucket(held.token.job_id) == "ready"
    assert (await the_step(arena, held.token.job_id)).value == '{"by": "ann"}'


async def test_a_suspend_that_repeats_a_wait_waits_for_an_emit_that_ends_it(arena: Arena) -> None:
    """The wait is the run's from an earlier suspension, so it is locked by its row."""
    held = await suspended(arena, an_event(), a_sleep(number=1))
    await arena.advance(HOUR)
    await arena.driver.wake()
    again = await arena.claim_one(await enlist(arena))
    async with arena.holding() as producer:
        assert (await emit(producer)).matched == 1
        suspending = await arena.start(lambda seat: suspend(seat, again, known(an_event())))
        await suspending.is_blocked_by(producer)
        await producer.commit()
    assert await suspending.result() is SettleAnswer.SETTLED
    assert await arena.bucket(held.token.job_id) == "ready"
    assert await steps(arena, held.token.job_id) == ["nap", "approval"]


async def test_an_emit_behind_a_suspend_that_repeats_its_wait_makes_the_run_ready(arena: Arena) -> None:
    held = await suspended(arena, an_event(), a_sleep(number=1))
    await arena.advance(HOUR)
    await arena.driver.wake()
    again = await arena.claim_one(await enlist(arena))
    async with arena.holding() as worker:
        assert await suspend(worker, again, known(an_event())) is SettleAnswer.SETTLED
        emitting = await arena.start(emit)
        await emitting.is_blocked_by(worker)
        await worker.commit()
    assert (await emitting.result()).matched == 1
    assert await arena.bucket(held.token.job_id) == "ready"


async def test_emits_of_two_keys_do_not_wait_for_each_other(arena: Arena) -> None:
    async with arena.holding() as first:
        await emit(first)
        assert (await arena.at_once(lambda seat: emit(seat, key="8"))).matched == 0
        await first.commit()


async def test_events_of_one_key_are_numbered_as_they_are_committed(arena: Arena) -> None:
    async with arena.holding() as first:
        await emit(first, '"first"')
        second = await arena.start(lambda seat: emit(seat, '"second"'))
        await second.is_blocked_by(first)
        await first.commit()
    await second.result()
    rows = await arena.fetch("select payload from outlast.event order by seq")
    assert [row[0] for row in rows] == ['"first"', '"second"']


async def test_an_emit_repeated_while_the_first_is_under_way_changes_nothing(arena: Arena) -> None:
    await suspended(arena, an_event())
    async with arena.holding() as first:
        one = await emit(first)
        second = await arena.start(lambda seat: emit(seat, id=one.id))
        await second.is_blocked_by(first)
        await first.commit()
    again = await second.result()
    assert (again.matched, again.is_repeated) == (1, True)


async def test_two_emits_that_wake_the_same_runs_take_them_in_one_order(arena: Arena) -> None:
    """Each run waits for both events; their rows are locked by job id, and what is suspended too."""
    worker = await enlist(arena)
    both = (an_event(), an_event("second", 1, key="8"))
    runs = [(await suspended(arena, *both, worker=worker)).token.job_id for _ in range(8)]
    async with arena.holding() as first:
        assert (await emit(first)).matched == 8
        second = await arena.start(lambda seat: emit(seat, key="8"))
        await second.is_blocked_by(first)
        await first.commit()
    assert (await second.result()).matched == 8
    assert [await arena.bucket(job_id) for job_id in runs] == ["ready"] * 8
    assert [await steps(arena, job_id) for job_id in runs] == [["approval", "second"]] * 8


# --- children


async def test_a_child_that_ends_behind_its_parents_suspend_wakes_it(arena: Arena) -> None:
    """The call is a job that was there before: only its lock keeps the two apart."""
    worker = await enlist(arena)
    child = await arena.running(worker, name=CHILD, key="once")
    parent = await arena.running(worker)
    async with arena.holding() as suspending:
        call = a_call(a_child(parent, key="once"))
        assert await suspend(suspending, parent, call) is SettleAnswer.SETTLED
        assert await complete(arena, child) is SettleAnswer.SETTLED
        telling = await arena.start(lambda seat: tell(seat, child))
        await telling.is_blocked_by(suspending)
        await suspending.commit()
    assert await telling.result() == 1
    assert await arena.bucket(parent.token.job_id) == "ready"
    assert (await the_step(arena, parent.token.job_id)).value == "7"


async def test_a_suspend_behind_the_end_of_its_child_sees_it(arena: Arena) -> None:
    worker = await enlist(arena)
    child = await arena.running(worker, name=CHILD, key="once", dedupe_for=HOUR)
    parent = await arena.running(worker)
    assert await complete(arena, child) is SettleAnswer.SETTLED
    async with arena.holding() as telling:
        assert await tell(telling, child) == 0
        suspending = await arena.start(
            lambda seat: suspend(seat, parent, a_call(a_child(parent, key="once", dedupe_for=HOUR)))
        )
        await suspending.is_blocked_by(telling)
        await telling.commit()
    assert await suspending.result() is SettleAnswer.SETTLED
    assert await arena.bucket(parent.token.job_id) == "ready"
    assert (await the_step(arena, parent.token.job_id)).value == "7"


async def test_a_childs_end_that_nobody_was_told_of_is_found_by_the_sweep_and_told_once(arena: Arena) -> None:
    parent, child = await called(arena)
    assert await complete(arena, child) is SettleAnswer.SETTLED
    assert await arena.bucket(parent.token.job_id) == "suspended"
    async with arena.holding() as first:
        assert (await first.driver.sweep_waits()).woken == 1
        second = await arena.start(lambda seat: seat.driver.sweep_waits())
        await second.is_blocked_by(first)
        await first.commit()
    assert (await second.result()).woken == 0
    assert await steps(arena, parent.token.job_id) == ["call"]
