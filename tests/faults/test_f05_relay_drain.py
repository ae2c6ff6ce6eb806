"""F5: a relay is told to leave, or dies, between publishing its rows and letting them go."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from app.domain.job import JobId
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.outbox import PostgresOutbox
from tests.faults.outbox import End, check_outbox
from tests.faults.statements import ENDING
from tests.support.drivers import new_job
from tests.support.processes import Fleet, Service, eventually
from tests.support.proxy import Proxy, proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

ROWS = 20


class Shop:
    """An application with a database of its own, whose outbox is relayed into that of the jobs."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_async_engine(create_engine(url).url)
        self.outbox = PostgresOutbox.over(create_engine(url))

    async def stage(self) -> list[JobId]:
        jobs = [new_job("faults.hold") for _ in range(ROWS)]
        async with AsyncSession(self._engine) as session, session.begin():
            await self.outbox.stage(session, jobs)
        return [job.id for job in jobs]

    async def claims(self) -> list[int]:
        """Give how often each row that is left was claimed."""
        connection = await asyncpg.connect(dsn_of(self.url))
        try:
            return [row[0] for row in await connection.fetch("select claims from outlast.outbox")]
        finally:
            await connection.close()

    async def is_empty(self) -> bool:
        return (await self.outbox.view()).oldest_at is None

    async def close(self) -> None:
        await self._engine.dispose()
        await self.outbox.close()


@pytest.fixture
async def shop(make_database: Callable[..., str]) -> AsyncIterator[Shop]:
    shop = Shop(make_database())
    yield shop
    await shop.close()


async def relay_and_rows(fleet: Fleet, proxy: Proxy, shop: Shop) -> tuple[Service, list[JobId]]:
    relay = await fleet.relay(OUTLAST_OUTBOX_URL=proxy.url).ready()
    jobs = await shop.stage()
    return relay, jobs


async def verify(store: Store, jobs: list[JobId]) -> None:
    """Every row is one job; the sources are beside the jobs, the outbox is empty by then."""
    connection = await asyncpg.connect(dsn_of(store.driver._db.url))
    try:
        assert await check_outbox(connection, jobs, ()) == {End.JOB: len(jobs)}
        assert await connection.fetchval("select count(*) from outlast.job") == len(jobs)
    finally:
        await connection.close()


@pytest.mark.parametrize("is_reply", [False, True], ids=["not sent", "not heard"])
async def test_a_pass_in_flight_at_sigterm_is_waited_for(
    fleet: Fleet, store: Store, shop: Shop, is_reply: bool
) -> None:
    async with proxy_to(shop.url, fleet.folder) as proxy:
        held = proxy.hold_reply(ENDING) if is_reply else proxy.hold(ENDING)
        relay, jobs = await relay_and_rows(fleet, proxy, shop)
        await held.until_caught()
        relay.terminate()
        await eventually(lambda: bool(relay.said("drain.started")), "the relay leaves")
        held.release()
        assert await relay.gone() == 0
        assert await shop.is_empty()
    await verify(store, jobs)


@pytest.mark.parametrize("is_reply", [False, True], ids=["not sent", "not heard"])
async def test_a_pass_that_outlives_the_drain_is_given_up_and_doubles_nothing(
    fleet: Fleet, store: Store, shop: Shop, is_reply: bool
) -> None:
    async with proxy_to(shop.url, fleet.folder) as proxy:
        held = proxy.hold_reply(ENDING) if is_reply else proxy.hold(ENDING)
        relay, jobs = await relay_and_rows(fleet, proxy, shop)
        await held.until_caught()
        relay.terminate()
        assert await relay.gone() == 70
        assert set(await shop.claims()) <= {1}, "nothing is claimed after accept"
        other = await fleet.relay(OUTLAST_OUTBOX_URL=shop.url).ready()
        await eventually(shop.is_empty, "the other relay has ended the rows")
        held.release()
        other.terminate()
        assert await other.gone() == 0
    await verify(store, jobs)


async def test_a_relay_killed_before_it_lets_go_is_recovered_after_its_lease(
    fleet: Fleet, store: Store, shop: Shop, dice: random.Random
) -> None:
    async with proxy_to(shop.url, fleet.folder) as proxy:
        held = proxy.hold(ENDING) if dice.random() < 0.5 else proxy.hold_reply(ENDING)
        relay, jobs = await relay_and_rows(fleet, proxy, shop)
        await held.until_caught()
        relay.kill()
        held.lose()
    connection = await asyncpg.connect(dsn_of(shop.url))
    await connection.execute(
        "create or replace function outlast.clock() returns timestamptz language sql stable parallel safe"
        " as $$select statement_timestamp() + interval '1 minute'$$"
    )
    await connection.close()
    other = await fleet.relay(OUTLAST_OUTBOX_URL=shop.url).ready()
    await eventually(shop.is_empty, "the other relay has ended the rows")
    other.terminate()
    assert await other.gone() == 0
    await verify(store, jobs)
