"""Races of a bulk run now with who ends the same sleeps, or holds them."""

from __future__ import annotations

import pytest

from app.domain.bulk import BulkAction, BulkStep, BulkView
from app.domain.state import State
from app.drivers.postgres.bulk import PostgresBulk
from tests.conformance.runs import HOUR, SECOND, a_sleep, an_event, emit, new_event, suspended
from tests.postgres.arena import Arena
from tests.support.bulk import a_bulk, store_of

pytestmark = pytest.mark.postgres


async def over(arena: Arena) -> BulkView:
    return await store_of(arena).make(a_bulk(BulkAction.RUN_NOW))


async def step(arena: Arena, made: BulkView) -> BulkStep:
    """Do the next batch; it must not have to wait."""
    done = await arena.at_once(lambda seat: PostgresBulk(seat.driver._db).step(only=made.id))  # type: ignore[attr-defined] # a seat's driver is PostgreSQL's
    assert done is not None
    return done


async def test_a_sleep_that_is_just_ending_is_left_for_the_next_round(arena: Arena) -> None:
    job_id = (await suspended(arena, a_sleep(delay=SECOND))).token.job_id
    made = await over(arena)
    await arena.advance(SECOND)
    async with arena.holding() as waking:
        assert await waking.driver.wake() > 0
        assert not (await step(arena, made)).has_decided
        await waking.commit()
    assert (await step(arena, made)).changed == 1
    assert (await arena.describe(job_id)).state is State.READY


@pytest.mark.parametrize("held", ["outlast.wait where name = 'nap'", "outlast.suspended"])
async def test_a_run_of_which_somebody_holds_one_row_is_left_whole(arena: Arena, held: str) -> None:
    """A sweep locks the sleeps that are due, and looks for their token in a statement of its own."""
    asleep = await suspended(arena, a_sleep(), a_sleep("rest", 1))
    made = await over(arena)
    async with arena.holding() as holding:
        await holding.connection.execute(f"select from {held} for update")
        assert not (await step(arena, made)).has_decided
        await holding.rollback()
    waits = (await arena.driver.history(asleep.token.job_id, asleep.run_id)).waits
    assert [wait.due_at for wait in waits] == [arena.now() + HOUR] * 2
    assert (await step(arena, made)).done == 1
    history = await arena.driver.history(asleep.token.job_id, asleep.run_id)
    assert sorted(each.name for each in history.steps) == ["nap", "rest"]


async def test_a_run_that_an_event_is_just_waking_is_left_and_sleeps_on_beside(arena: Arena) -> None:
    asleep = await suspended(arena, a_sleep(), an_event("approval", 1))
    made = await over(arena)
    async with arena.holding() as emitting:
        assert (await emitting.driver.emit(new_event())).matched == 1
        assert not (await step(arena, made)).has_decided
        await emitting.commit()
    assert (await step(arena, made)).changed == 1
    history = await arena.driver.history(asleep.token.job_id, asleep.run_id)
    assert [(wait.name, wait.due_at) for wait in history.waits] == [("nap", arena.now() + HOUR)]


async def test_an_emit_behind_a_bulk_run_now_waits_and_finds_the_run_asleep(arena: Arena) -> None:
    job_id = (await suspended(arena, a_sleep(), an_event("approval", 1))).token.job_id
    made = await over(arena)
    async with arena.holding() as stepping:
        done = await PostgresBulk(stepping.driver._db).step(only=made.id)  # type: ignore[attr-defined] # same
        assert done is not None
        emitting = await arena.start(emit)
        await emitting.is_blocked_by(stepping)
        await stepping.commit()
    await emitting.result()
    assert (await arena.describe(job_id)).state is State.READY
