"""Migrations: many at once, up and down, in any schema, and the tables are the ones the code believes in."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic import command

from app.domain.errors import DriverUnavailable, SchemaOutdated, SettingsInvalid
from app.drivers.postgres import migrations, tables
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(90)]

ROOT = Path(__file__).parents[2]

GROWN = ("ready", "waiting", "running", "suspended", "wait")
EARLY = (
    *("autovacuum_vacuum_scale_factor=0.02", "autovacuum_vacuum_threshold=2000"),
    *("autovacuum_analyze_scale_factor=0.05", "autovacuum_vacuum_insert_scale_factor=0.05"),
)

_OBJECTS = """
select relname from pg_class where relnamespace = to_regnamespace($1) and relkind in ('r', 'S', 'v')
union all select proname from pg_proc where pronamespace = to_regnamespace($1) order by 1"""

_INSTANTS = """
select c.relname, a.attname, pg_get_expr(k.conbin, k.conrelid) as checked
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_constraint k on k.conrelid = c.oid and k.contype = 'c' and k.conkey = array[a.attnum]
where c.relnamespace = 'outlast'::regnamespace and c.relkind = 'r' and a.atttypid = 'timestamptz'::regtype"""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn_of(url))
    try:
        yield connection
    finally:
        await connection.close()


async def objects(url: str, schema: str = "outlast") -> list[str]:
    async with connected(url) as connection:
        return [row[0] for row in await connection.fetch(_OBJECTS, schema)]


def alembic(url: str, *commands: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run alembic as in a checkout, command after command in one process."""
    calls = "".join(f"main({list(command)!r}); " for command in commands)
    return subprocess.run(
        [sys.executable, "-c", f"from alembic.config import main; {calls}"],
        cwd=ROOT,
        env={**os.environ, "OUTLAST_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


async def test_eight_upgrades_at_once_all_succeed(empty_database_url: str) -> None:
    results = await asyncio.gather(*(migrations.upgrade(empty_database_url) for _ in range(8)))
    assert {(status.current, status.is_outdated) for status in results} == {(migrations.head(), False)}
    async with connected(empty_database_url) as connection:
        assert await connection.fetchval("select count(*) from outlast.alembic_version") == 1


async def test_an_upgrade_repeated_changes_nothing(database_url: str) -> None:
    before = await objects(database_url)
    await migrations.upgrade(database_url)
    assert await objects(database_url) == before


async def test_the_schema_is_the_one_the_code_believes_in(database_url: str) -> None:
    assert await migrations.check(database_url) == ()


@pytest.mark.parametrize(
    "change",
    [
        "alter table outlast.job add column surplus text",
        "alter table outlast.running alter column worker type bigint",
        "alter table outlast.ready alter column name_id drop not null",
        "drop index outlast.waiting_due",
        "drop table outlast.drain",
    ],
)
async def test_a_schema_that_drifted_is_told(database_url: str, change: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute(change)
    assert len(await migrations.check(database_url)) == 1


async def test_a_check_before_the_first_migration_names_the_repair(empty_database_url: str) -> None:
    with pytest.raises(SchemaOutdated, match="migrate up"):
        await migrations.check(empty_database_url)


async def test_down_leaves_nothing_and_up_brings_everything_back(database_url: str) -> None:
    before = await objects(database_url)
    status = await migrations.downgrade(database_url, revision="base")
    assert (status.current, status.is_outdated) == (None, True)
    assert await objects(database_url) == ["alembic_version"]
    await migrations.upgrade(database_url)
    assert await objects(database_url) == before
    assert await migrations.check(database_url) == ()


async def test_down_before_the_first_migration_is_nothing(empty_database_url: str) -> None:
    assert (await migrations.downgrade(empty_database_url, revision="base")).current is None


# A word of SQL's own among them: names are quoted wherever they stand.
@pytest.mark.parametrize("schema", ["jobs_of_the_shop", "user", "_" + "x" * 47])
async def test_another_schema_stands_beside_the_first(database_url: str, schema: str) -> None:
    await migrations.upgrade(database_url, schema=schema)
    assert await objects(database_url, schema) == await objects(database_url)
    assert await migrations.check(database_url, schema=schema) == ()
    await migrations.downgrade(database_url, schema=schema, revision="base")
    assert await migrations.check(database_url) == ()


@pytest.mark.parametrize("schema", ["", "Jobs", "a b", 'a"b', "1st", "pg-jobs", "x" * 49, "outlast;"])
async def test_a_name_that_cannot_stand_in_sql_is_refused(empty_database_url: str, schema: str) -> None:
    with pytest.raises(SettingsInvalid):
        await migrations.upgrade(empty_database_url, schema=schema)


async def test_an_upgrade_gives_up_on_a_lock_that_is_never_released(empty_database_url: str) -> None:
    async with connected(empty_database_url) as other:
        await other.execute("select pg_advisory_lock($1)", migrations._lock_key("outlast"))
        with pytest.raises(DriverUnavailable, match="pg_stat_activity"):
            await migrations.upgrade(empty_database_url, patience=timedelta(milliseconds=300))
    assert await objects(empty_database_url) == []


async def test_an_upgrade_waits_for_the_one_that_holds_the_lock(empty_database_url: str) -> None:
    async with connected(empty_database_url) as other, asyncio.TaskGroup() as group:
        await other.execute("select pg_advisory_lock($1)", migrations._lock_key("outlast"))
        upgrading = group.create_task(migrations.upgrade(empty_database_url))
        # It has connected and tried at least once when its session is seen.
        while not await other.fetchval(
            "select count(*) from pg_stat_activity"
            " where application_name = 'outlast migrate' and datname = current_database() and query like '%pg_try_adv%'"
        ):
            assert not upgrading.done()
        await other.execute("select pg_advisory_unlock($1)", migrations._lock_key("outlast"))
    assert upgrading.result().is_outdated is False


_WAITS_FOR_WORKER = """
select exists(select from pg_locks where relation = 'outlast.worker'::regclass and not granted)"""


async def test_an_upgrade_holds_nothing_of_one_step_while_the_next_waits_for_the_fleet(database_url: str) -> None:
    """A claim locks `worker`, then `running`; 0003 takes `running`, and 0005 `worker`."""
    await migrations.downgrade(database_url, revision="0002")
    async with connected(database_url) as fleet, connected(database_url) as other, asyncio.TaskGroup() as group:
        claim = fleet.transaction()
        await claim.start()
        await fleet.execute("lock table outlast.worker in row exclusive mode")
        upgrading = group.create_task(migrations.upgrade(database_url))
        while not await other.fetchval(_WAITS_FOR_WORKER):
            assert not upgrading.done()
        await fleet.execute("set local lock_timeout = '100ms'")
        await fleet.execute("lock table outlast.running in row exclusive mode")
        assert await migrations.current(database_url) == "0004"
        await claim.commit()
    assert upgrading.result().is_outdated is False


async def test_an_upgrade_that_a_deadlock_undid_is_tried_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrations.downgrade(database_url, revision="0007")
    asked: list[str] = []
    real = command.upgrade

    def upgrade(config: Any, revision: str) -> None:
        asked.append(revision)
        real(config, revision)
        if len(asked) == 1:
            config.attributes["connection"].exec_driver_sql(
                "do $$ begin raise exception 'deadlock detected' using errcode = '40P01'; end $$"
            )

    monkeypatch.setattr(command, "upgrade", upgrade)
    assert (await migrations.upgrade(database_url)).is_outdated is False
    assert asked[:2] == ["0008", "0008"]
    assert len(asked) == len(set(asked)) + 1


async def test_moves_by_a_number_of_steps_count_from_where_they_began(database_url: str) -> None:
    await migrations.downgrade(database_url, revision="0007")
    assert (await migrations.downgrade(database_url, revision="-2")).current == "0005"
    assert (await migrations.upgrade(database_url, revision="+1")).current == "0006"


async def test_a_release_without_limits_finds_limited_jobs_among_the_ready(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute(
            "insert into outlast.ready(queue, rank, job_id, name_id) values ('default', 32 + 11, gen_random_uuid(), 1)"
        )
        assert await connection.fetchval("select rank from outlast.gate") == 43
        assert await connection.fetchval("select count(*) from outlast.ready") == 0
    await migrations.downgrade(database_url, revision="0014")
    async with connected(database_url) as connection:
        assert await connection.fetchval("select rank from outlast.ready") == 11


async def test_a_database_newer_than_the_code_is_left_alone(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute("update outlast.alembic_version set version_num = '9999'")
    assert (await migrations.upgrade(database_url)).is_outdated is False
    assert await migrations.current(database_url) == "9999"
    driver, engine = _driver(database_url)
    await driver.open()
    await engine.dispose()


async def test_a_driver_refuses_a_database_without_the_schema(empty_database_url: str) -> None:
    driver, engine = _driver(empty_database_url)
    with pytest.raises(SchemaOutdated, match="migrate up"):
        await driver.open()
    await engine.dispose()


def test_the_code_needs_no_more_than_its_own_migrations() -> None:
    assert migrations.head() == tables.REQUIRED_REVISION


async def pages(url: str) -> dict[str, int]:
    """Give the size of the token tables."""
    async with connected(url) as connection:
        sizes = [await connection.fetchval(f"select pg_relation_size('outlast.{table}') / 8192") for table in GROWN]
        return dict(zip(GROWN, sizes, strict=True))


async def test_token_tables_are_empty_clean_and_large_enough_to_be_planned_for(database_url: str) -> None:
    assert min((await pages(database_url)).values()) > 100
    async with connected(database_url) as connection:
        for table in GROWN:
            assert await connection.fetchval(f"select count(*) from outlast.{table}") == 0
            assert (
                await connection.fetchval(f"select reltuples from pg_class where oid = 'outlast.{table}'::regclass")
                == 0
            )


async def test_tables_of_rows_that_come_and_go_are_vacuumed_early_and_keep_their_pages(database_url: str) -> None:
    async with connected(database_url) as connection:
        rows = await connection.fetch(
            "select relname, reloptions from pg_class where relnamespace = 'outlast'::regnamespace and relkind = 'r'"
        )
    early = {row["relname"] for row in rows if {"vacuum_truncate=off", *EARLY} <= set(row["reloptions"] or ())}
    assert early == {*GROWN, "live_key", "outbox", "gate", "limit_key", "slot", "turn", "delivery"}
    assert {row["relname"]: row["reloptions"] for row in rows}["worker"] == ["fillfactor=50"]


async def test_growing_again_changes_nothing_and_harms_no_job(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute(
            "insert into outlast.ready(queue, rank, job_id, name_id) values ('default', 1, gen_random_uuid(), 1)"
        )
    before = await pages(database_url)
    assert (await migrations.downgrade(database_url, revision="0001")).current == "0001"
    assert (await migrations.upgrade(database_url)).current == migrations.head()
    assert await pages(database_url) == before
    async with connected(database_url) as connection:
        assert await connection.fetchval("select count(*) from outlast.ready") == 1


async def test_a_suspended_job_begins_anew_under_the_release_before(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute(
            "insert into outlast.suspended(job_id, queue, rank, name_id, reason)"
            " values ('01a229e9-0000-7000-8000-000000000000', 'default', 10, 1, 2)"
        )
        assert (await migrations.downgrade(database_url, revision="0005")).current == "0005"
        assert await connection.fetchval("select count(*) from outlast.ready where rank = 10 and moved") == 1


async def test_a_table_that_is_small_after_all_is_grown(database_url: str) -> None:
    """A dump and restore, or a `vacuum full`, gives the pages back; going down and up brings them again."""
    async with connected(database_url) as connection:
        for table in GROWN:
            await connection.execute(f"vacuum full outlast.{table}")
    assert max((await pages(database_url)).values()) == 0
    await migrations.downgrade(database_url, revision="0001")
    await migrations.upgrade(database_url)
    assert min((await pages(database_url)).values()) > 100


async def test_the_sql_given_offline_makes_the_same_schema(empty_database_url: str, database_url: str) -> None:
    async with connected(empty_database_url) as connection:
        await connection.execute(migrations.sql())
    assert await objects(empty_database_url) == await objects(database_url)
    assert await migrations.check(empty_database_url) == ()


async def test_every_timestamp_is_one_that_clients_can_read_back(database_url: str) -> None:
    refused = ["infinity", "-infinity", "10000-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00"]
    accepted = ["1970-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"]
    async with connected(database_url) as connection:
        columns = await connection.fetch(_INSTANTS)
        assert len(columns) == 84
        for table, column, checked in columns:
            assert checked is not None, f"{table}.{column} takes any timestamp"
            holds = f'select {checked} from (select $1::text::timestamptz as "{column}") x'
            assert [await connection.fetchval(holds, value) for value in refused] == [False] * 4
            assert [await connection.fetchval(holds, value) for value in accepted] == [True] * 2


async def test_an_unreachable_database_is_a_cause_and_a_repair() -> None:
    with pytest.raises(DriverUnavailable, match="OUTLAST_DATABASE_URL"):
        await migrations.status("postgresql://nobody@127.0.0.1:9/nothing")


def test_alembic_run_bare_finds_metadata_and_database_itself(empty_database_url: str) -> None:
    ran = alembic(empty_database_url, ("upgrade", "head"), ("check",), ("downgrade", "base"), ("current",))
    assert (ran.returncode, ran.stdout.strip()) == (0, "No new upgrade operations detected."), ran.stderr


def test_no_package_in_the_checkout_shadows_the_library() -> None:
    assert not (ROOT / "alembic" / "__init__.py").exists()


def _driver(url: str) -> tuple[PostgresDriver, Any]:
    engine = create_engine(url, pool_size=1)
    return PostgresDriver(engine), engine


async def test_a_revision_that_is_not_there_is_refused_with_a_repair(empty_database_url: str) -> None:
    with pytest.raises(SettingsInvalid, match="zzz") as refused:
        await migrations.upgrade(empty_database_url, revision="zzz")
    assert "head" in refused.value.fix
    with pytest.raises(SettingsInvalid, match="zzz"):
        migrations.sql(revision="zzz")
