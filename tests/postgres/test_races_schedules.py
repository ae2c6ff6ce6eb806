"""Races of schedulers with each other, with deploys and with operators."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.schedule import Declaration, OccurrenceOutcome, Overlap, Plan, Planned, ScheduleView
from app.domain.state import State
from app.drivers.postgres.schedules import PostgresSchedules
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import new_job

pytestmark = pytest.mark.postgres

NIGHTLY = "nightly"
MINUTE = timedelta(minutes=1)


def of(seat: Seat) -> PostgresSchedules:
    """Give the schedules on a seat's own connection."""
    return PostgresSchedules(seat.driver._db)  # type: ignore[attr-defined] # a seat's driver is PostgreSQL's


def declared(version: str = "1", cron: str = "* * * * *") -> Declaration:
    return Declaration(name=NIGHTLY, code_version=version, cron=cron, tz="UTC", document="{}")


def plan(arena: Arena, *, overlap: Overlap = Overlap.ALLOW, minute: int = 0, version: str = "1") -> Plan:
    at = arena.now() + minute * MINUTE
    planned = (Planned(at=at, job=new_job()),)
    return Plan(name=NIGHTLY, digest=declared(version).digest, until=at, planned=planned, overlap=overlap)


async def declare(arena: Arena, version: str = "1") -> PostgresSchedules:
    store: PostgresSchedules = arena.driver.schedules  # type: ignore[attr-defined] # PostgreSQL's
    await store.declare([declared(version)])
    # A name of a job type is a row that an enqueue may add.
    await arena.driver.cancel(await arena.enqueue(), reason="only its name is needed")
    return store


async def view(store: PostgresSchedules) -> ScheduleView:
    found = await store.find(NIGHTLY)
    assert found is not None
    return found


async def ready(arena: Arena) -> int:
    return (await arena.driver.stats()).by_state.get(State.READY, 0)


async def test_a_schedule_that_somebody_decides_is_passed_over_by_the_others(arena: Arena) -> None:
    store = await declare(arena)
    async with arena.holding() as first:
        assert len(await of(first).decide(plan(arena)) or ()) == 1
        assert await arena.at_once(lambda seat: of(seat).decide(plan(arena))) is None
        await first.commit()
    assert await store.decide(plan(arena)) == ()
    assert await ready(arena) == 1


async def test_what_a_scheduler_that_died_had_decided_is_decided_by_the_next(arena: Arena) -> None:
    store = await declare(arena)
    async with arena.holding() as first:
        assert len(await of(first).decide(plan(arena)) or ()) == 1
        await first.rollback()
    assert await ready(arena) == 0
    assert len((await view(store)).occurrences) == 0
    assert len(await store.decide(plan(arena)) or ()) == 1
    assert await ready(arena) == 1


async def test_two_occurrences_decided_at_once_do_not_both_pass_the_look_for_an_overlap(arena: Arena) -> None:
    store = await declare(arena)
    async with arena.holding() as first:
        await of(first).decide(plan(arena, overlap=Overlap.SKIP))
        second = plan(arena, overlap=Overlap.SKIP, minute=1)
        assert await arena.at_once(lambda seat: of(seat).decide(second)) is None
        await first.commit()
    (decided,) = await store.decide(second) or ()
    assert (decided.outcome, decided.why) == (OccurrenceOutcome.SKIPPED, "overlap")
    assert await ready(arena) == 1


async def test_a_declaration_behind_a_decision_waits_and_the_old_one_decides_nothing_after_it(arena: Arena) -> None:
    store = await declare(arena)
    new = declared("2", "*/5 * * * *")
    async with arena.holding() as deciding:
        await of(deciding).decide(plan(arena))
        declaring = await arena.start(lambda seat: of(seat).declare([new]))
        await declaring.is_blocked_by(deciding)
        await deciding.commit()
    await declaring.result()
    assert await store.decide(plan(arena, minute=1)) is None
    assert (await view(store)).code_version == "2"


async def test_a_decision_beside_a_declaration_that_is_not_committed_is_put_off(arena: Arena) -> None:
    store = await declare(arena)
    async with arena.holding() as declaring:
        await of(declaring).declare([declared("2")])
        assert await arena.at_once(lambda seat: of(seat).decide(plan(arena))) is None
        await declaring.commit()
    assert await store.decide(plan(arena)) is None
    assert await ready(arena) == 0


async def test_an_old_declaration_shown_beside_a_new_one_does_not_win_by_committing_last(arena: Arena) -> None:
    store = await declare(arena)
    async with arena.holding() as newer:
        await of(newer).declare([declared("2")])
        older = await arena.start(lambda seat: of(seat).declare([declared("1")]))
        await older.is_blocked_by(newer)
        await newer.commit()
    await older.result()
    assert (await view(store)).code_version == "2"


async def test_two_processes_that_declare_a_new_schedule_at_once_make_one(arena: Arena) -> None:
    store: PostgresSchedules = arena.driver.schedules  # type: ignore[attr-defined] # PostgreSQL's
    async with arena.holding() as first:
        await of(first).declare([declared("1")])
        second = await arena.start(lambda seat: of(seat).declare([declared("2")]))
        await second.is_blocked_by(first)
        await first.commit()
    await second.result()
    assert (await view(store)).code_version == "2"


async def test_a_pause_behind_a_decision_lets_it_be_and_stops_the_next(arena: Arena) -> None:
    store = await declare(arena)
    async with arena.holding() as deciding:
        await of(deciding).decide(plan(arena))
        pausing = await arena.start(lambda seat: of(seat).pause(NIGHTLY, by="ada"))
        await pausing.is_blocked_by(deciding)
        await deciding.commit()
    await pausing.result()
    assert await store.decide(plan(arena, minute=1)) is None
    assert await ready(arena) == 1


async def test_firing_by_hand_behind_a_decision_waits_and_both_fire(arena: Arena) -> None:
    await declare(arena)
    async with arena.holding() as deciding:
        await of(deciding).decide(plan(arena))
        firing = await arena.start(lambda seat: of(seat).fire(NIGHTLY, new_job(), by="ada"))
        await firing.is_blocked_by(deciding)
        await deciding.commit()
    assert (await firing.result()).outcome is OccurrenceOutcome.FIRED
    assert await ready(arena) == 2


async def test_two_trims_pass_each_other_by(arena: Arena) -> None:
    store = await declare(arena)
    await store.decide(plan(arena))
    await store.decide(plan(arena, minute=1))
    await arena.advance(timedelta(days=91))
    async with arena.holding() as first:
        assert await of(first).trim(1) == 1
        assert await arena.at_once(lambda seat: of(seat).trim(10)) == 1
        await first.commit()
    assert (await view(store)).occurrences == ()
