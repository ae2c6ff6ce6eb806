"""Four purgers, four schedulers, four reapers and four workers at once: nothing is lost, nobody locks anybody out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from app.domain.errors import OutlastError
from app.domain.event import EventQuery
from app.domain.job import JobId
from app.domain.outcome import Completed, SettleAnswer, Settlement
from app.domain.retention import Chore, EndedRule, Retention
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.conformance.runs import new_event
from tests.postgres.test_schedulers import four
from tests.roles.scheduling import MINUTE, every, fired, skipped, to_full_minute
from tests.support.deadlocks import Deadlocks
from tests.support.drivers import NAME, PostgresEnv, new_job, new_worker, postgres_env

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

FOUR = 4
MINUTES = 12
BRIEF = Retention(done=2 * MINUTE, dead=2 * MINUTE, event=2 * MINUTE, record=2 * MINUTE)
NAMES = frozenset({NAME, "ticks.note"})
QUEUES = ("default", new_job().queue)


class Fleet:
    """What is done to one database from connections of processes of their own."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.enqueued: set[JobId] = set()
        self.completed: Counter[JobId] = Counter()
        self.purged: Counter[str] = Counter()
        self.errors: list[OutlastError] = []

    async def work(self, driver: PostgresDriver) -> None:
        """Claim and complete; a worker whose lease has passed comes again."""
        while not self.stop.is_set():
            worker = await driver.register_worker(new_worker(queues=QUEUES))
            for _ in range(20):
                shares = tuple(QueueShare(queue=queue, room=10) for queue in QUEUES)
                claimed = await driver.claim(ClaimRequest(worker_id=worker, shares=shares, names=NAMES, room=20))
                batch = [Settlement(one.token, Completed(), is_keyed=one.key is not None) for one in claimed]
                answers = await driver.settle(batch) if batch else ()
                for one, answer in zip(claimed, answers, strict=True):
                    self.completed[JobId(one.token.job_id)] += answer is SettleAnswer.SETTLED
                await asyncio.sleep(0.005)
            await driver.close_worker(worker)

    async def reap(self, driver: PostgresDriver) -> None:
        """Do what is done for workers that are gone."""
        while not self.stop.is_set():
            for verb in (driver.reap, driver.promote, driver.expire, driver.wake):
                await verb(50)
            await asyncio.sleep(0.005)

    async def purge(self, driver: PostgresDriver) -> None:
        """Go round after round, in small steps, beside operators who purge as well."""
        while not self.stop.is_set():
            for chore in Chore:
                self.purged[chore.value] += (await driver.tidy(chore, BRIEF, batch=20, now=True)).deleted
            step = await driver.purge_ended(EndedRule.older_than(2 * MINUTE), batch=20)
            self.purged["by hand"] += step.deleted
            await asyncio.sleep(0.002)

    async def produce(self, driver: PostgresDriver) -> None:
        """Enqueue jobs, half of them with keys, and emit events."""
        number = 0
        while not self.stop.is_set():
            number += 1
            jobs = [
                new_job(key=f"{number}.{place}" if place % 2 else None, dedupe_for=MINUTE if place % 2 else None)
                for place in range(10)
            ]
            self.enqueued |= {answer.id for answer in await driver.enqueue_many(jobs)}
            await driver.emit(new_event())
            await asyncio.sleep(0.01)

    async def guarded(self, part: Callable[[PostgresDriver], Awaitable[None]], driver: PostgresDriver) -> None:
        try:
            await part(driver)
        except OutlastError as error:
            self.errors.append(error)


@asynccontextmanager
async def processes(url: str, count: int) -> AsyncIterator[list[PostgresDriver]]:
    async with AsyncExitStack() as stack:
        drivers = []
        for _ in range(count):
            driver = PostgresDriver(create_engine(url, pool_size=1), schema="outlast", owns_engine=True)
            await driver.open()
            stack.push_async_callback(driver.close)
            drivers.append(driver)
        yield drivers


async def _drained(fleet: Fleet, env: PostgresEnv) -> None:
    """Run what is left."""
    fleet.stop.clear()
    task = asyncio.create_task(fleet.work(env.driver))  # type: ignore[arg-type] # it is one
    async with asyncio.timeout(30):
        while await _live(env):
            await env.driver.reap()
            await env.driver.promote()
            await asyncio.sleep(0.01)
    fleet.stop.set()
    await task


async def _live(env: PostgresEnv) -> int:
    by_state = (await env.driver.stats()).by_state
    return sum(count for state, count in by_state.items() if state.value in {"ready", "delayed", "running"})


async def _fetch(env: PostgresEnv, sql: str) -> list[Any]:
    async with env.engine.connect() as connection:
        return list((await connection.exec_driver_sql(sql)).all())


async def test_everything_at_once_loses_nothing_and_locks_nobody_out(database_url: str) -> None:
    fleet = Fleet()
    async with AsyncExitStack() as stack:
        env = await stack.enter_async_context(postgres_env(database_url))
        begin = await to_full_minute(env)
        deadlocks = Deadlocks(partial(_fetch, env))
        drivers = await stack.enter_async_context(processes(database_url, 3 * FOUR + 1))
        posts, _ = await stack.enter_async_context(four(env, database_url, every(catch_up="all")))
        parts = [fleet.work, fleet.reap, fleet.purge] * FOUR + [fleet.produce]
        async with asyncio.TaskGroup() as group:
            for part, driver in zip(parts, drivers, strict=True):
                group.create_task(fleet.guarded(part, driver))
            for number in range(1, MINUTES + 1):
                await asyncio.sleep(0.1)  # work goes on between two minutes
                await env.advance(MINUTE)
                await posts[0].until_decided(begin + number * MINUTE)
            fleet.stop.set()
        rows = await posts[0].rows()
        await _drained(fleet, env)
        await deadlocks.none()
        events = await env.driver.events(EventQuery(limit=200))
    assert fleet.errors == []
    due = [at for at in fired(rows) if at > begin]
    assert due == [begin + number * MINUTE for number in range(1, MINUTES + 1)]
    assert skipped(rows) == []
    scheduled = {row.job_id for row in rows if row.job_id is not None}
    assert len(scheduled) == len(rows)
    assert set(fleet.completed) == fleet.enqueued | scheduled
    assert set(fleet.completed.values()) == {1}
    assert events, "the last are not over yet"
    for kind in (Chore.JOBS.value, Chore.KEYS.value, Chore.EVENTS.value, "by hand"):
        assert fleet.purged[kind], f"no {kind} were purged"
