"""How long somebody has kept dead rows from being vacuumed away, as the gauges of the store tell it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from app.domain.snapshot import OldestSnapshot
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.vitals_server import HOLDERS
from app.observability.metrics import Metrics
from tests.postgres.arena import Arena
from tests.support.processes import eventually

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]


async def _oldest(arena: Arena) -> OldestSnapshot:
    found = (await arena.driver.stats()).oldest_snapshot
    assert found is not None
    return found


async def test_nobody_keeps_a_snapshot(lone_arena: Arena) -> None:
    assert await _oldest(lone_arena) == OldestSnapshot(seconds=0, xids=0)


async def test_a_reader_that_stays_is_told_by_its_age_and_the_transactions_since(lone_arena: Arena) -> None:
    async with lone_arena.holding(isolation="repeatable_read") as reader:
        await reader.connection.fetchval("select count(*) from outlast.job")
        for _ in range(5):
            await lone_arena.enqueue()
        await asyncio.sleep(0.05)  # it is the age that is looked at
        found = await _oldest(lone_arena)
        assert found.xids >= 5
        assert found.seconds >= 0.05
        metrics = Metrics()
        metrics.show(await lone_arena.driver.stats())
        assert metrics.registry.get_sample_value("outlast_oldest_xmin_age") == found.xids
        (row,) = await lone_arena.fetch("select age(backend_xmin) from pg_stat_activity where pid = $1", reader.pid)
        assert found.xids == row[0]
    await eventually(lambda: _is_none(lone_arena), "it has let go")


async def _is_none(arena: Arena) -> bool:
    return await _oldest(arena) == OldestSnapshot(seconds=0, xids=0)


async def test_of_a_session_of_another_role_the_transactions_are_told_though_not_the_age(
    lone_arena: Arena, lone_url: str
) -> None:
    await lone_arena.execute_all("create role looks_only login; grant usage on schema outlast to looks_only")
    await lone_arena.execute_all("grant select on all tables in schema outlast to looks_only")
    try:
        async with lone_arena.holding(isolation="repeatable_read") as reader:
            await reader.connection.fetchval("select count(*) from outlast.job")
            await lone_arena.enqueue()
            await _seen_by(lone_url, reader.pid)
    finally:
        await lone_arena.execute_all("drop owned by looks_only; drop role looks_only")


async def _seen_by(url: str, pid: int) -> None:
    connection = await asyncpg.connect(dsn_of(url))
    try:
        await connection.execute("set session authorization looks_only")
        (row,) = [row for row in await connection.fetch(HOLDERS) if row["name"] == str(pid)]
    finally:
        await connection.close()
    assert row["age"] is None
    assert row["xids"] >= 1
