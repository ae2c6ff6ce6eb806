"""What a process says of its connections to the store."""

from __future__ import annotations

import asyncio

from app.drivers.capabilities import PoolUse, pool_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver


async def test_the_pool_says_what_is_open_busy_and_waited_for(database_url: str) -> None:
    driver = PostgresDriver(create_engine(database_url, pool_size=2), owns_engine=True)
    await driver.open()
    try:
        assert pool_of(driver) == PoolUse(size=2, open=1, busy=0, waiting=0), "what is at hand is idle"
        async with driver._db.raw(), driver._db.raw():
            waiting = asyncio.create_task(driver.ping())
            while not (found := pool_of(driver)) or not found.waiting:
                await asyncio.sleep(0)
            assert found == PoolUse(size=2, open=2, busy=2, waiting=1)
        await waiting
        ended = pool_of(driver)
        assert ended is not None
        assert (ended.size, ended.busy, ended.waiting) == (2, 0, 0)
    finally:
        await driver.close()
