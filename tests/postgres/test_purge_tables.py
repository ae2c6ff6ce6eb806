"""Tables of applications: which rows go, page by page, and which tables and columns are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import NotImplementedYet, SettingsInvalid
from app.domain.retention import TableRule
from app.drivers.memory.driver import MemoryDriver
from tests.postgres.arena import Arena

pytestmark = pytest.mark.postgres

DAY = timedelta(days=1)
VISITS = TableRule(table="visits", older_than=DAY)


async def _visits(arena: Arena, column: str = "created_at timestamptz", rows: int = 4) -> None:
    """Make a table with a row a day back from now."""
    await arena.fetch(f"create table visits(at int, {column})")
    await arena.fetch(
        f"insert into visits select i, outlast.clock() - i * interval '1 day' from generate_series(0, {rows - 1}) i"
    )


async def _left(arena: Arena, table: str = "visits") -> list[int]:
    return [row[0] for row in await arena.fetch(f"select at from {table} order by at")]


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
async def test_rows_go_by_their_time_whatever_its_type(arena: Arena, kind: str) -> None:
    await arena.fetch("set timezone = 'UTC'")
    await _visits(arena, f"created_at {kind}")
    assert await arena.driver.count_table(VISITS) == (3 if kind == "date" else 2)
    step = await arena.driver.tidy_table(VISITS)
    assert (step.deleted, step.is_over) == ((3 if kind == "date" else 2), True)
    assert await _left(arena) == ([0] if kind == "date" else [0, 1])


async def test_a_round_goes_through_the_pages_and_keeps_its_place(arena: Arena) -> None:
    await arena.fetch("create table visits(at int, created_at timestamptz, filler text)")
    await arena.fetch(
        "insert into visits select i, outlast.clock() - interval '2 days', repeat('x', 1000)"
        " from generate_series(1, 70) i"
    )
    steps = [await arena.driver.tidy_table(VISITS, blocks=3, rest=DAY) for _ in range(5)]
    assert [step.is_over for step in steps] == [False, False, False, True, True]
    assert sum(step.deleted for step in steps) == 70
    assert [step.deleted for step in steps][:3] == [21, 21, 21]
    assert steps[4].is_idle
    assert await _left(arena) == []


async def test_rows_that_somebody_holds_are_passed_over(arena: Arena) -> None:
    await _visits(arena)
    async with arena.holding() as other:
        await other.connection.execute("update visits set created_at = outlast.clock() where at = 3")
        assert (await arena.at_once(lambda seat: seat.driver.tidy_table(VISITS))).deleted == 1
        await other.commit()
    assert await _left(arena) == [0, 1, 3]


async def test_a_table_may_name_its_schema_and_a_column_of_its_own(arena: Arena) -> None:
    await arena.fetch("create schema audit")
    await arena.fetch('create table audit."Visit"(at int, "seenAt" timestamptz)')
    await arena.fetch("insert into audit.\"Visit\" values (1, outlast.clock() - interval '2 days')")
    rule = TableRule(table="audit.Visit", older_than=DAY, column="seenAt")
    assert (await arena.driver.tidy_table(rule)).deleted == 1
    assert await _left(arena, 'audit."Visit"') == []


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (TableRule(table="nowhere", older_than=DAY), "no such table"),
        (TableRule(table="visits", older_than=DAY, column="nothing"), "no such column"),
        (TableRule(table="visits", older_than=DAY, column="at"), "integer"),
        (TableRule(table="outlast.job", older_than=DAY), "not a table of the application's"),
        (TableRule(table="pg_catalog.pg_class", older_than=DAY), "not a table of the application's"),
        (TableRule(table="seen", older_than=DAY), "no plain table"),
    ],
    ids=lambda value: value.table if isinstance(value, TableRule) else "",
)
async def test_what_cannot_be_purged_is_refused_with_the_reason(arena: Arena, rule: TableRule, why: str) -> None:
    await _visits(arena)
    await arena.fetch("create view seen as select * from visits")
    for verb in (arena.driver.tidy_table, arena.driver.count_table):
        with pytest.raises(SettingsInvalid, match=why) as caught:
            await verb(rule)
        assert caught.value.fix
    assert await _left(arena) == [0, 1, 2, 3]


async def test_a_row_that_others_refer_to_fails_its_step_and_nothing_is_half_done(arena: Arena) -> None:
    await arena.fetch("create table visits(at int primary key, created_at timestamptz)")
    await arena.fetch("create table pages(visit int references visits)")
    await arena.fetch("insert into visits select i, outlast.clock() - interval '2 days' from generate_series(1, 3) i")
    await arena.fetch("insert into pages values (2)")
    with pytest.raises(SettingsInvalid, match="rows of another table"):
        await arena.driver.tidy_table(VISITS)
    assert await _left(arena) == [1, 2, 3]
    await arena.fetch("delete from pages")
    assert (await arena.driver.tidy_table(VISITS, now=True)).deleted == 3


async def test_a_store_that_is_no_database_has_no_tables() -> None:
    driver = MemoryDriver()
    for verb in (driver.tidy_table, driver.count_table):
        with pytest.raises(NotImplementedYet):
            await verb(VISITS)
