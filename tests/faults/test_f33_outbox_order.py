"""F33 and F24: two hundred writers whose transactions commit out of order, one in ten rolled back, many relays.

Published is what was committed, whatever the order; relays of both ways on one host, coming and going, double nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from app.domain.job import JobId, NewJob
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.lifecycle.role import Phase
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.outbox.passes import DriverPasses, Passes, SharedPasses
from app.outbox.relay import Relay, RelayOptions
from tests.faults.outbox import End, check_outbox
from tests.support.drivers import new_job
from tests.support.outbox import new_relay
from tests.support.processes import eventually, report

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

WRITERS = 200
CONNECTIONS = 50
KEYS = 5


class RolledBackError(Exception):
    """What one in ten transactions ends with."""


@dataclass
class Written:
    """What the writers did."""

    committed: list[NewJob] = field(default_factory=list)
    rolled_back: list[NewJob] = field(default_factory=list)


class Writer:
    """One caller: transactions of one row each, with ids that were minted long before and are used in any order."""

    def __init__(self, engine: AsyncEngine, driver: PostgresDriver, dice: random.Random, longest_ms: int) -> None:
        self._engine = engine
        self._driver = driver
        self._dice = dice
        self._longest_ms = longest_ms

    async def write(self, jobs: list[NewJob], written: Written) -> None:
        for job in jobs:
            try:
                await self._transaction(job, is_undone=self._dice.random() < 0.1)
            except RolledBackError:
                written.rolled_back.append(job)
            else:
                written.committed.append(job)

    async def _transaction(self, job: NewJob, *, is_undone: bool) -> None:
        async with AsyncSession(self._engine) as session, session.begin():
            await self._driver.outbox.stage(session, [job])
            await asyncio.sleep(self._dice.randint(1, self._longest_ms) / 1000)  # how long the caller's work takes
            if is_undone:
                raise RolledBackError


@asynccontextmanager
async def driver_on(url: str) -> AsyncIterator[PostgresDriver]:
    driver = PostgresDriver(create_engine(url, pool_size=4), owns_engine=True)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


def relay_over(driver: PostgresDriver, *, is_shared: bool, dice: random.Random) -> Relay:
    def new_passes() -> Passes:
        return SharedPasses(driver.outbox) if is_shared else DriverPasses(driver.outbox, driver, new_relay())

    return Relay(
        outbox=driver.outbox,
        new_passes=new_passes,
        driver=driver,
        telemetry=Telemetry(metrics=Metrics()),
        roll=dice.random,
        options=RelayOptions(batch=50, poll=timedelta(milliseconds=50), sweep=timedelta(milliseconds=200)),
    )


def jobs_of(dice: random.Random, count: int) -> list[NewJob]:
    jobs = []
    for _ in range(count):
        chance = dice.random()
        if chance < 0.1:
            jobs.append(new_job(key=f"key {dice.randrange(KEYS)}"))
        elif chance < 0.12:
            jobs.append(new_job(payload="{"))
        else:
            jobs.append(new_job())
    dice.shuffle(jobs)
    return jobs


async def come_and_go(relays: list[Relay], dice: random.Random, over: asyncio.Event) -> None:
    while not over.is_set():
        relay = dice.choice(relays)
        if relay.phase is Phase.RUNNING:
            await relay.stop()
        else:
            await relay.start()
        await asyncio.sleep(0.02)


async def run(url: str, dice: random.Random, *, each: int, longest_ms: int) -> tuple[Written, Any]:
    engine = create_async_engine(create_engine(url).url, pool_size=CONNECTIONS, max_overflow=0, pool_timeout=120)
    written, over = Written(), asyncio.Event()
    async with driver_on(url) as first, driver_on(url) as second:
        drivers = (first, second, first, second)
        relays = [relay_over(each, is_shared=at < 2, dice=dice) for at, each in enumerate(drivers)]
        coming = asyncio.ensure_future(come_and_go(relays[1:], dice, over))
        await relays[0].start()
        writers = [Writer(engine, first, random.Random(dice.random()), longest_ms) for _ in range(WRITERS)]
        await asyncio.gather(*(writer.write(jobs_of(dice, each), written) for writer in writers))
        over.set()
        await coming

        async def is_empty() -> bool:
            return (await first.outbox.view()).oldest_at is None

        took = await eventually(is_empty, "the outbox is empty")
        report(f"the last row was published {took:.2f} s after the last commit")
        await asyncio.gather(*(relay.stop() for relay in relays))
    await engine.dispose()
    return written, [relay.abandoned for relay in relays]


async def verify(url: str, written: Written) -> None:
    connection = await asyncpg.connect(dsn_of(url))
    try:
        ends = await check_outbox(connection, _ids(written.committed), _ids(written.rolled_back))
        keyed = {job.key for job in written.committed if job.key is not None}
        plain = [job for job in written.committed if job.key is None and job.payload == "{}"]
        assert ends[End.JOB] == len(plain) + len(keyed)
        assert ends[End.QUARANTINED] == sum(job.payload == "{" for job in written.committed)
        assert await connection.fetchval("select count(*) from outlast.job") == ends[End.JOB]
    finally:
        await connection.close()


def _ids(jobs: list[NewJob]) -> list[JobId]:
    return [job.id for job in jobs]


async def test_published_is_what_was_committed(database_url: str, dice: random.Random) -> None:
    written, abandoned = await run(database_url, dice, each=3, longest_ms=100)
    assert len(written.committed) + len(written.rolled_back) == WRITERS * 3
    assert written.rolled_back
    assert abandoned == [0, 0, 0, 0]
    await verify(database_url, written)


@pytest.mark.soak
async def test_published_is_what_was_committed_by_long_transactions(database_url: str, dice: random.Random) -> None:
    written, _ = await run(database_url, dice, each=10, longest_ms=500)
    await verify(database_url, written)
