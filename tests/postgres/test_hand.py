"""Connections kept at hand: no way to the pool for each verb, and nobody waits for one that is only kept."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.pool import QueuePool

from app.domain.errors import DriverUnavailable
from app.drivers.postgres.connect import connect
from app.drivers.postgres.database import Database, create_engine
from tests.support.postgres import scratch
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.postgres

_SIZE = 2


class Pool:
    """A database with an engine of its own, and how often its pool was asked."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(url, pool_size=_SIZE)
        self.db = Database(self.engine, is_alone=True)
        self.asked = 0
        event.listen(self.engine.sync_engine, "checkout", self._asked)

    @property
    def out(self) -> int:
        """Give how many connections the pool counts as checked out."""
        pool = self.engine.sync_engine.pool
        assert isinstance(pool, QueuePool)
        return pool.checkedout()

    def _asked(self, *_: Any) -> None:
        self.asked += 1


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    made = Pool(database_url)
    yield made
    await made.db.close()
    await made.engine.dispose()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="outlast-hand-", dir=scratch()) as path:
        yield Path(path)


async def backend(pool: Pool) -> int:
    async with pool.db.raw() as conn:
        return int(await conn.fetchval("select pg_backend_pid()"))


async def test_a_verb_after_another_asks_the_pool_for_nothing(pool: Pool) -> None:
    pids = [await backend(pool) for _ in range(5)]
    assert len(set(pids)) == 1
    assert pool.asked == 1


@pytest.mark.parametrize("is_alone", [True, False])
async def test_checking_out_and_in_sends_nothing(database_url: str, folder: Path, *, is_alone: bool) -> None:
    async with proxy_to(database_url, folder) as proxy:
        engine = create_engine(proxy.url, pool_size=_SIZE)
        db = Database(engine, is_alone=is_alone)
        try:
            async with db.raw() as first:
                await first.fetchval("select 1")
            every = proxy.count("")
            for _ in range(3):
                async with db.raw() as again:
                    await again.execute("select 1")
            assert every.count == 3
        finally:
            await db.close()
            await engine.dispose()


async def test_the_connection_used_last_is_used_next(pool: Pool) -> None:
    async with pool.db.raw() as outer:
        outer_pid = await outer.fetchval("select pg_backend_pid()")
        inner_pid = await backend(pool)
    assert inner_pid != outer_pid
    assert [await backend(pool) for _ in range(3)] == [outer_pid] * 3
    assert pool.asked == _SIZE


async def test_who_waits_while_all_are_in_use_gets_the_next_one(pool: Pool) -> None:
    async with pool.db.raw(), pool.db.raw():
        waiting = [asyncio.create_task(backend(pool)) for _ in range(4)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
    async with asyncio.timeout(5):
        pids = await asyncio.gather(*waiting)
    assert len(set(pids)) <= _SIZE
    asked = pool.asked
    await backend(pool)
    assert pool.asked == asked, "kept again once nobody waits"


async def test_who_gave_up_waiting_is_waited_for_no_more(pool: Pool) -> None:
    async with pool.db.raw(), pool.db.raw():
        waiting = asyncio.create_task(backend(pool))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    asked = pool.asked
    await backend(pool)
    assert pool.asked == asked


async def test_one_that_ended_while_it_was_kept_is_replaced_and_takes_no_place(pool: Pool) -> None:
    async with pool.db.raw() as first, pool.db.raw() as second:
        drivers: list[Any] = [first, second]
    for driver in drivers:
        driver.terminate()
        async with asyncio.timeout(5):
            while not driver.is_closed():
                await asyncio.sleep(0)
    async with pool.db.raw(), pool.db.raw():
        assert pool.out == _SIZE
    assert await backend(pool)


async def test_a_closed_database_has_given_everything_back(pool: Pool) -> None:
    await backend(pool)
    assert pool.out == 1
    await pool.db.close()
    assert pool.out == 0


async def test_one_in_use_while_the_database_closes_goes_back_too(pool: Pool) -> None:
    async with pool.db.raw():
        await pool.db.close()
    assert pool.out == 0


async def test_a_statement_is_planned_once(database_url: str) -> None:
    """Beside a million ready jobs a plan of its own for each batch looked cheaper, and cost a fifth of the drain."""
    sql = "select from outlast.ready where queue = $1 order by queue, rank, seq limit $2"
    conn = await connect(database_url, application_name="under test")
    try:
        for limit in range(7):
            await conn.fetch(sql, "default", limit)
        plans = await conn.fetch(
            "select generic_plans, custom_plans from pg_prepared_statements where statement = $1", sql
        )
    finally:
        await conn.close()
    assert [(row["generic_plans"], row["custom_plans"]) for row in plans] == [(7, 0)]


async def test_after_one_that_answers_nothing_none_of_its_like_is_waited_for(database_url: str, folder: Path) -> None:
    """A network that swallows everything has them all; each would cost a time limit of its own."""
    async with proxy_to(database_url, folder) as proxy:
        engine = create_engine(proxy.url, pool_size=_SIZE, command_timeout=timedelta(seconds=0.2))
        db = Database(engine, is_alone=True)
        async with db.raw() as one, db.raw() as other:
            before = {await conn.fetchval("select pg_backend_pid()") for conn in (one, other)}
        proxy.is_black_hole = True
        with pytest.raises(DriverUnavailable):
            async with db.raw() as conn:
                await conn.fetchval("select 1")
        proxy.is_black_hole = False
        async with db.raw() as conn:
            assert await conn.fetchval("select pg_backend_pid()") not in before
        await db.close()
        await engine.dispose()


async def test_a_session_gets_a_connection_that_is_only_kept(pool: Pool) -> None:
    """Of a process that was busy once all are at hand: none of them does anything, and its pool has none."""
    async with AsyncExitStack() as busy:
        for _ in range(_SIZE):
            await busy.enter_async_context(pool.db.raw())
    assert pool.out == _SIZE
    async with asyncio.timeout(5), AsyncSession(pool.engine) as session:
        with pool.db.lending():
            assert not (await session.connection()).closed
        assert await backend(pool)


async def test_a_session_waits_for_the_next_connection_that_is_given_back(pool: Pool) -> None:
    async with AsyncSession(pool.engine) as session, AsyncExitStack() as busy:
        for _ in range(_SIZE):
            await busy.enter_async_context(pool.db.raw())

        async def connected() -> None:
            with pool.db.lending():
                assert not (await session.connection()).closed

        waiting = asyncio.ensure_future(connected())
        await asyncio.sleep(0)
        assert not waiting.done()
        await busy.aclose()
        async with asyncio.timeout(5):
            await waiting
