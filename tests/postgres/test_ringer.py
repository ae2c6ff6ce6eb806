"""The ringer: one connection of its own, opened when needed, replaced when broken, and never in the way of a verb."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import Wake
from tests.postgres.arena import Arena
from tests.postgres.test_listen import Ear
from tests.support.drivers import new_job
from tests.support.postgres import scratch
from tests.support.processes import eventually
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.postgres


@pytest.fixture
async def driver(database_url: str) -> AsyncIterator[PostgresDriver]:
    """A driver with a pool of one connection, apart from the arena's."""
    made = PostgresDriver(create_engine(database_url, pool_size=1), owns_engine=True)
    yield made
    await made.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="outlast-ring-", dir=scratch()) as path:
        yield Path(path)


async def ringers(arena: Arena) -> list[int]:
    """Give the backends of connections that ring."""
    rows = await arena.fetch(
        "select pid from pg_stat_activity where application_name = 'outlast notify' and datname = current_database()"
    )
    return [int(row["pid"]) for row in rows]


async def test_any_number_of_wake_ups_takes_one_connection_opened_by_the_first(
    arena: Arena, driver: PostgresDriver
) -> None:
    ear = Ear()
    await driver.ping()
    async with arena.driver.listen(ear):
        assert await ringers(arena) == []
        place = 0
        for _ in range(3):
            await driver.enqueue(new_job())
            place = await ear.hears(Wake.READY, after=place)
        (first,) = await ringers(arena)
        await driver.enqueue(new_job())
        await ear.hears(Wake.READY, after=place)
        assert await ringers(arena) == [first]


async def test_a_wake_up_waits_for_no_connection_of_the_pool(arena: Arena, driver: PostgresDriver) -> None:
    ear = Ear()
    async with arena.driver.listen(ear):
        await driver.enqueue(new_job())
        async with driver._db.raw():  # the only one
            await ear.hears(Wake.READY)


async def test_a_broken_connection_is_replaced_and_its_wake_up_is_sent_again(
    arena: Arena, driver: PostgresDriver
) -> None:
    ear = Ear()
    async with arena.driver.listen(ear):
        await driver.enqueue(new_job())
        place = await ear.hears(Wake.READY)
        (first,) = await ringers(arena)
        await arena.fetch("select pg_terminate_backend($1)", first)
        await eventually(lambda: _is_gone(arena, first), "its backend is gone")
        await driver.enqueue(new_job())
        await ear.hears(Wake.READY, after=place)
        (second,) = await ringers(arena)
        assert second != first


async def _is_gone(arena: Arena, pid: int) -> bool:
    return pid not in await ringers(arena)


async def test_wake_ups_that_cannot_be_sent_fail_no_verb_and_go_out_when_the_way_is_free(
    arena: Arena, database_url: str, folder: Path
) -> None:
    ear = Ear()
    async with proxy_to(database_url, folder) as proxy, arena.driver.listen(ear):
        driver = PostgresDriver(create_engine(proxy.url, pool_size=1), owns_engine=True)
        lost = proxy.hold("pg_notify", times=1)
        await driver.enqueue(new_job())
        await lost.until_caught()
        await driver.enqueue(new_job())
        assert Wake.READY not in ear.heard
        lost.lose()
        await ear.hears(Wake.READY)
        await driver.close()


async def test_the_connection_ends_with_the_driver_and_nothing_rings_after_that(
    arena: Arena, driver: PostgresDriver
) -> None:
    ear = Ear()
    async with arena.driver.listen(ear):
        await driver.enqueue(new_job())
        await ear.hears(Wake.READY)
        await driver.close()
        await driver.close()
        driver._db.ringer.ring([Wake.READY])

        async def are_gone() -> bool:
            return await ringers(arena) == []

        await eventually(are_gone, "the connection is closed")


async def test_what_was_rung_last_is_sent_before_the_driver_is_closed(arena: Arena, driver: PostgresDriver) -> None:
    ear = Ear()
    async with arena.driver.listen(ear):
        await driver.enqueue(new_job())
        await driver.close()
        await ear.hears(Wake.READY)
