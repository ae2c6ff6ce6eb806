"""Resumed work is claimed before new, by many processes at once; and the judge of that, which rolling restarts trust.

The judge is shown the instants between a write and its commit, and before a rollback, which are made to last.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from app.domain.job import ClaimedJob, JobId
from app.domain.outcome import Completed, Interrupted, Outcome, Settlement, Snoozed
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from tests.faults.checkers import resumed_before_new
from tests.faults.departures import overtakings, resumed, taken
from tests.faults.history import audit, writes
from tests.postgres.arena import Arena, Seat
from tests.postgres.chaos import request
from tests.support.drivers import new_job, new_worker

pytestmark = pytest.mark.postgres

_PROCESSES = 3
_WORKERS = 2
_ENDS: tuple[Outcome, ...] = (
    Completed(),
    Completed(),
    Snoozed(delay=timedelta()),
    Interrupted(cause="drain"),
    Interrupted(cause="drain", delay=timedelta()),
)


async def snoozed(arena: Arena) -> JobId:
    """Give a job that a body snoozed and whose time has come."""
    token = (await arena.running()).token
    await arena.close_attempt(token, Snoozed(delay=timedelta()))
    return token.job_id


async def claimed(arena: Arena, seat: Seat | None = None) -> JobId:
    job = await (seat or arena).claim_one(await arena.register())
    return job.token.job_id


async def test_a_new_job_may_be_claimed_before_a_promotion_is_committed(arena: Arena) -> None:
    await audit(arena)
    woken = await snoozed(arena)
    async with arena.holding() as promoter:
        await promoter.connection.fetchval("select pg_current_xact_id()")
        new = await arena.enqueue()  # a younger transaction, and over: the promoter's is below what a snapshot spans
        await promoter.driver.promote()
        assert await claimed(arena) == new
        await promoter.commit()
    assert await claimed(arena) == woken
    history = await writes(arena)
    (waits,) = resumed(history)
    assert waits.job == woken
    assert [new.written < waits.visible for new in taken(history)] == [True, True], "its own first claim, the new one"
    resumed_before_new([waits], taken(history))


async def test_a_new_job_claimed_past_a_snoozed_one_that_is_there_is_seen(arena: Arena) -> None:
    await audit(arena)
    woken = await snoozed(arena)
    await arena.driver.promote()
    first, second = await arena.enqueue(), await arena.enqueue()
    async with arena.holding() as locker:
        assert await claimed(arena, locker) == woken
        assert await claimed(arena) == first
        await locker.rollback()
    assert await claimed(arena) == woken
    assert await claimed(arena) == second
    history = await writes(arena)
    with pytest.raises(AssertionError, match=f"{first} is new and was claimed before {woken}"):
        resumed_before_new(resumed(history), taken(history))


async def test_many_processes_at_once_claim_nothing_new_past_what_is_resumed(arena: Arena, database_url: str) -> None:
    await audit(arena)
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(_process(database_url, random.Random(number))) for number in range(_PROCESSES)]
        group.create_task(_promote_slowly(arena, workers))
    history = await writes(arena)
    waited, new = resumed(history), taken(history)
    assert overtakings(history) > 100, "resumed work came first while new work waited"
    assert sum(one.claimed < float("inf") for one in waited) > 100
    resumed_before_new(waited, new)


async def _promote_slowly(arena: Arena, workers: Sequence[asyncio.Task[None]]) -> None:
    """Commit promotions late: numbers that were drawn long ago are below what everybody else has claimed since."""
    seat = await arena._seat()
    while not all(worker.done() for worker in workers):
        async with seat.connection.transaction():
            await seat.driver.promote(2)
            for _ in range(10):
                await arena.enqueue()


async def _process(database_url: str, dice: random.Random) -> None:
    """Be one process, which has its own low-water marks, with workers that claim, settle, promote and enqueue."""
    async with _driver(database_url) as driver, asyncio.TaskGroup() as group:
        for _ in range(_WORKERS):
            group.create_task(_work(driver, dice))


@asynccontextmanager
async def _driver(database_url: str) -> AsyncIterator[PostgresDriver]:
    engine = create_engine(database_url, pool_size=_WORKERS)
    driver = PostgresDriver(engine)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()
        await engine.dispose()


async def _work(driver: PostgresDriver, dice: random.Random) -> None:
    worker = await driver.register_worker(new_worker())
    held: Sequence[ClaimedJob] = ()
    for _ in range(150):
        await driver.enqueue_many([new_job() for _ in range(dice.randint(1, 4))])
        await driver.promote(dice.choice((2, 1000)))
        ends = [Settlement(token=job.token, outcome=dice.choice(_ENDS)) for job in held]
        if dice.random() < 0.5:
            await driver.settle(ends)
            held = await driver.claim(request(worker, dice.randint(1, 6)))
        else:
            _, held = await driver.settle_and_claim(ends, request(worker, dice.randint(1, 6)))
