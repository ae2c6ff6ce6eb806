"""Crashes of jobs that write to the database: a transaction's step is written with its record, or neither is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.jobs import JobContext, job
from app.testing import Crash, CrashDifference, PostgresStore, crash_everywhere

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

INSERT = text("insert into booking(number) values (:number)")


@pytest.fixture
async def engine(kit_schema: tuple[str, str]) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(kit_schema[0].replace("postgresql://", "postgresql+asyncpg://"))
    async with made.begin() as connection:
        await connection.exec_driver_sql("create table if not exists booking(number int not null)")
    yield made
    await made.dispose()


def effects_of(engine: AsyncEngine) -> tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[None]]]:
    async def booked() -> object:
        async with engine.connect() as connection:
            rows = await connection.execute(text("select number, count(*) from booking group by number order by 1"))
            return [tuple(row) for row in rows]

    async def clear() -> None:
        async with engine.begin() as connection:
            # A lock that a killed worker left behind would stop this, and the test with it.
            await connection.exec_driver_sql("truncate booking")

    return booked, clear


@pytest.mark.parametrize(
    "own_engine",
    [
        pytest.param(False, id="the store's session"),
        pytest.param(True, id="an engine of the caller's", marks=pytest.mark.long),
    ],
)
async def test_what_a_transaction_writes_is_written_once(
    kit_schema: tuple[str, str], engine: AsyncEngine, *, own_engine: bool
) -> None:
    @job("crash.books")
    async def books(ctx: JobContext, number: int) -> None:
        async with ctx.step.transaction("book", bind=engine if own_engine else None) as session:
            await session.execute(INSERT, {"number": number})

    check, before = effects_of(engine)
    store = PostgresStore(kit_schema[0], schema=kit_schema[1])
    report = await crash_everywhere(books, {"number": 4}, check=check, before=before, store=store)
    assert report.expected.effects == [(4, 1)]


async def test_what_is_written_beside_the_record_is_written_twice(
    kit_schema: tuple[str, str], engine: AsyncEngine
) -> None:
    async def insert(number: int) -> None:
        async with engine.begin() as connection:
            await connection.execute(INSERT, {"number": number})

    @job("crash.writes")
    async def writes(ctx: JobContext, number: int) -> None:
        await ctx.step.run("insert", insert, number)

    check, before = effects_of(engine)
    store = PostgresStore(kit_schema[0], schema=kit_schema[1])
    with pytest.raises(CrashDifference) as found:
        await crash_everywhere(writes, {"number": 4}, check=check, before=before, store=store, crashes=[Crash.KILLED])
    (difference,) = found.value.report.differences
    assert (difference.spot.moment, difference.spot.step) == ("inside", "insert")
    assert difference.actual.effects == [(4, 2)]
