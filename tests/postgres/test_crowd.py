"""F18: sixteen sweepers beside sixteen workers, purgers, operators, bulk executors and schedulers: not one deadlock.

Neither told to anybody nor, as the server counts them, repeated by anybody. `make soak` does it for ten minutes.
"""

from __future__ import annotations

import pytest

from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from tests.postgres.arena import Arena
from tests.postgres.crowd import gathered
from tests.support.deadlocks import Deadlocks
from tests.support.drivers import PostgresEnv, start_time
from tests.support.processes import report

pytestmark = pytest.mark.postgres


async def _no_deadlock(url: str, *, seconds: float, seed: int, watch_url: str | None = None) -> None:
    engine = create_engine(url, pool_size=4)
    driver = PostgresDriver(engine)
    arena = Arena(PostgresEnv(driver, engine, start_time()), url, watch_url=watch_url)
    try:
        await driver.open()
        deadlocks = Deadlocks(arena.fetch)
        books, ticks = await gathered(arena, workers=16, sweepers=16, others=4, seconds=seconds, seed=seed)
        report(f"{dict(books.calls)}, {sum(map(len, books.claims.values()))} claims, {ticks.decided} occurrences")
        await deadlocks.none(*books.deadlocks)
        assert books.calls["cut"] == 0
        assert ticks.decided > 0
        assert books.claims
        places = ("ready", "gate", "waiting", "running", "held", "suspended", "finished")
        every = " union all ".join(f"select job_id from outlast.{place}" for place in places)
        assert await arena.fetch(f"select from ({every}) t group by job_id having count(*) <> 1") == []
        (row,) = await arena.fetch(f"select count(*) from outlast.job where id not in ({every})")
        assert row[0] == 0
    finally:
        await arena.end()
        await driver.close()
        await engine.dispose()


@pytest.mark.timeout(120)
async def test_everybody_at_once_for_ten_seconds_sees_no_deadlock(database_url: str) -> None:
    await _no_deadlock(database_url, seconds=10, seed=1)


@pytest.mark.pooled
@pytest.mark.timeout(120)
async def test_everybody_at_once_behind_a_pooler_sees_no_deadlock(pooled_url: str, database_url: str) -> None:
    await _no_deadlock(pooled_url, seconds=10, seed=2, watch_url=database_url)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_everybody_at_once_for_ten_minutes_sees_no_deadlock(database_url: str) -> None:
    await _no_deadlock(database_url, seconds=600, seed=3)
