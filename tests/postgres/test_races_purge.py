"""Purges among themselves and against what meets the rows they delete: nobody waits for a round, and none is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from app.domain.job import Enqueued, JobId
from app.domain.outcome import DeadLettered, Settlement
from app.domain.retention import Chore, EndedRule, Retention, TableRule
from app.domain.state import DeadReason
from tests.conformance.runs import HOUR, a_sleep, an_event, emit, enlist, record, steps, suspended
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import ERROR, new_id

pytestmark = pytest.mark.postgres

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
AT_ONCE = EndedRule.older_than(SECOND)
BRIEF = Retention(done=SECOND, dead=SECOND)


async def _cancelled(arena: Arena, count: int = 1) -> list[JobId]:
    jobs = [await arena.enqueue() for _ in range(count)]
    for job_id in jobs:
        await arena.driver.cancel(job_id, reason="stop")
    await arena.advance(2 * SECOND)
    return jobs


@pytest.mark.parametrize("chore", Chore)
async def test_of_two_rounds_over_a_kind_the_second_has_nothing_to_do(arena: Arena, chore: Chore) -> None:
    await _cancelled(arena)
    async with arena.holding() as first:
        assert not (await first.driver.tidy(chore, BRIEF)).is_idle
        second = await arena.at_once(lambda seat: seat.driver.tidy(chore, BRIEF))
        assert (second.deleted, second.is_over, second.is_idle) == (0, True, True)
        await first.commit()
    assert not (await arena.driver.tidy(chore, BRIEF)).is_idle


async def test_of_two_rounds_over_a_table_the_second_has_nothing_to_do(arena: Arena) -> None:
    await arena.fetch("create table visits as select now() - interval '2 days' as created_at")
    rule = TableRule(table="visits", older_than=DAY)
    await arena.driver.tidy_table(rule)
    async with arena.holding() as first:
        assert not (await first.driver.tidy_table(rule)).is_idle
        assert (await arena.at_once(lambda seat: seat.driver.tidy_table(rule))).is_idle
        await first.commit()


async def test_a_round_that_is_killed_in_a_step_goes_on_where_it_was(arena: Arena) -> None:
    """What the step before it deleted is not looked for again, what its own would have deleted is."""
    jobs = sorted(await _cancelled(arena, 6))
    assert (await arena.driver.tidy(Chore.JOBS, BRIEF, batch=2)).deleted == 2
    killed = await arena._seat()
    await killed.begin()
    assert (await killed.driver.tidy(Chore.JOBS, BRIEF, batch=2)).deleted == 2
    await arena.fetch("select pg_terminate_backend($1, 5000)", killed.pid)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await killed.connection.execute("select 1")
    (mark,) = await arena.fetch("select after, began_at from outlast.purge_mark where kind = 'jobs'")
    assert (mark["after"], mark["began_at"] is not None) == (str(jobs[1]), True)
    assert (await arena.driver.tidy(Chore.JOBS, BRIEF, batch=2)).deleted == 2
    (mark,) = await arena.fetch("select after from outlast.purge_mark where kind = 'jobs'")
    assert mark["after"] == str(jobs[3])
    assert [await arena.driver.describe(job_id) is None for job_id in jobs] == [True] * 4 + [False] * 2


async def test_a_round_passes_over_what_is_being_retried(arena: Arena) -> None:
    first, second = await _cancelled(arena, 2)
    async with arena.holding() as operator:
        await operator.driver.retry(first)
        assert (await arena.at_once(lambda seat: seat.driver.tidy(Chore.JOBS, BRIEF))).deleted == 1
        await operator.commit()
    assert (await arena.driver.tidy(Chore.JOBS, BRIEF)).deleted == 0
    assert await arena.bucket(first) == "ready"
    assert await arena.driver.describe(second) is None


async def _dead_and_waiting(arena: Arena) -> JobId:
    """Give a dead job whose run waits for an event."""
    worker = await enlist(arena)
    held = await suspended(arena, an_event(), a_sleep(number=1), worker=worker)
    await arena.advance(HOUR + SECOND)
    assert await arena.driver.wake() == 1
    held = await arena.claim_one(worker)
    outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
    await arena.driver.settle([Settlement(token=held.token, outcome=outcome)])
    await arena.advance(2 * SECOND)
    assert await arena.fetch("select from outlast.wait") != []
    return held.token.job_id


async def test_a_purge_behind_an_emit_takes_the_run_that_has_just_been_told(arena: Arena) -> None:
    job_id = await _dead_and_waiting(arena)
    async with arena.holding() as emitter:
        assert (await emit(emitter)).matched == 1
        purging = await arena.start(lambda seat: seat.driver.purge_ended(AT_ONCE))
        await purging.is_blocked_by(emitter)
        await emitter.commit()
    assert (await purging.result()).deleted == 1
    assert await arena.driver.describe(job_id) is None
    assert await arena.fetch("select from outlast.wait") == []


async def test_an_emit_behind_a_purge_finds_no_wait(arena: Arena) -> None:
    await _dead_and_waiting(arena)
    async with arena.holding() as purger:
        assert (await purger.driver.purge_ended(AT_ONCE)).deleted == 1
        emitting = await arena.start(emit)
        await emitting.is_blocked_by(purger)
        await purger.commit()
    assert (await emitting.result()).matched == 0
    assert await arena.fetch("select from outlast.step") == []


class _Between:
    """A fork's connection, before whose copy of the history something else happens."""

    def __init__(self, seat: Seat, happens: Callable[[], Awaitable[object]]) -> None:
        self._connection = seat.connection
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, sql: str, *args: object) -> str:
        await self._happens()
        return str(await self._connection.execute(sql, *args))


async def test_a_fork_beside_a_purge_has_its_whole_history(arena: Arena) -> None:
    """The purge comes between two statements of the fork, waits for nobody and takes the first job along."""
    held = await arena.running()
    await record(arena, held.token, "load")
    await arena.driver.cancel(held.token.job_id, reason="stop")
    await arena.advance(2 * SECOND)
    purged: list[int] = []

    async def purge() -> None:
        purged.append((await arena.at_once(lambda seat: seat.driver.purge_ended(AT_ONCE))).deleted)

    async def fork(seat: Seat) -> Enqueued:
        database: Any = seat.driver
        database._db.connection = _Between(seat, purge)
        return await seat.driver.fork(held.token.job_id, new_id=new_id())

    forked = await (await arena.start(fork)).result()
    assert sum(purged) == purged[0] == 1
    assert await steps(arena, forked.id) == ["load"]
    assert await arena.driver.describe(held.token.job_id) is None
