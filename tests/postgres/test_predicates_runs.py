"""Predicates of what ends waits that no other test would miss: which runs wake, and whose children are cancelled."""

from __future__ import annotations

import pytest

from app.domain.job import ClaimedJob
from app.domain.outcome import Cancelled, Completed, SettleAnswer, Settlement, Suspended
from app.domain.state import State
from app.drivers.postgres.waits import SWEEP
from tests.conformance.runs import (
    CHILD,
    HOUR,
    a_call,
    a_child,
    a_sleep,
    called,
    die,
    enlist,
    known,
    settle,
    state_of,
    suspend,
)
from tests.postgres.arena import Arena, Seat

pytestmark = pytest.mark.postgres


async def test_a_failed_child_that_nobody_asks_for_any_more_is_not_looked_at_again(arena: Arena) -> None:
    worker = await enlist(arena)
    _, child = await called(arena, worker)
    await die(arena, child)
    again = await arena.claim_one(worker)
    assert await suspend(arena, again, a_sleep(number=1)) is State.SUSPENDED
    (row,) = await arena.fetch(SWEEP, None, 10)
    assert (row["looked"], row["children"]) == (0, [])


async def test_a_sweep_leaves_a_run_alone_that_is_not_suspended(arena: Arena) -> None:
    worker = await enlist(arena)
    parent, child = await called(arena, worker)
    await settle(arena, child, Completed(result="7"), is_child=False)
    (row,) = await arena.fetch(SWEEP, None, 10)
    assert (row["looked"], row["children"]) == (1, [child.token.job_id])
    await arena.fetch("delete from outlast.suspended where job_id = $1", parent.token.job_id)
    (row,) = await arena.fetch(SWEEP, None, 10)
    assert (row["looked"], row["children"]) == (1, [])


async def test_a_sweep_looks_at_all_calls_of_one_child_together(arena: Arena) -> None:
    worker = await enlist(arena)
    there = await arena.enqueue(CHILD, key="k")
    for _ in range(2):
        held = await arena.running(worker)
        await suspend(arena, held, a_call(a_child(held, key="k")))
    (row,) = await arena.fetch(SWEEP, None, 1)
    assert (row["looked"], row["last"]) == (2, there)


async def test_an_end_takes_no_job_along_that_was_there_before_the_call(arena: Arena) -> None:
    worker = await enlist(arena)
    held = await arena.running(worker)
    other = await arena.enqueue(CHILD, key="order:7")
    await suspend(arena, held, a_call(a_child(held, key="order:7")), a_sleep(number=1, delay=HOUR))
    await arena.advance(HOUR)
    assert await arena.driver.wake() == 1
    again = await arena.claim_one(worker)
    await settle(arena, again, Cancelled(reason="the caller's"), has_waits=True)
    assert await state_of(arena, other) is State.READY


async def test_the_end_of_a_child_waits_for_a_suspend_that_repeats_its_call(arena: Arena) -> None:
    worker = await enlist(arena)
    parent = await arena.running(worker)
    child = a_child(parent)
    await suspend(arena, parent, a_call(child), a_sleep(number=1, delay=HOUR))
    running = await arena.claim_one(worker, names=(CHILD,))
    await arena.advance(HOUR)
    assert await arena.driver.wake() == 1
    again = await arena.claim_one(worker)
    async with arena.holding() as seat:
        waits = Suspended(waits=(known(a_call(child)),))
        assert list(await seat.driver.settle([Settlement(again.token, waits, has_waits=True)])) == [
            SettleAnswer.SETTLED
        ]
        ending = await arena.start(lambda other: _complete(other, running))
        await ending.is_blocked_by(seat)
        await seat.commit()
    await ending.result()
    assert await state_of(arena, parent.token.job_id) is State.READY


async def _complete(seat: Seat, child: ClaimedJob) -> None:
    await seat.driver.settle([Settlement(child.token, Completed(), is_child=True)])
