"""Connections through a pooler: what does not arrive is found out, said, and done without where it must be right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.domain.errors import SettingsInvalid
from app.drivers.capabilities import Capabilities
from app.drivers.postgres import migrations
from app.drivers.postgres.connect import connect, dsn_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.pooler import Statements, is_pooled, statements_of
from tests.support import pooler
from tests.support.pooler import Pooler, running_pooler

pytestmark = pytest.mark.postgres

ALL = (
    "enable_bitmapscan",
    "enable_seqscan",
    "idle_in_transaction_session_timeout",
    "jit",
    "lock_timeout",
    "statement_timeout",
)

Start = Callable[..., AbstractContextManager[Pooler]]


@pytest.fixture
def start(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a pooler of the test's own, with lines of configuration."""
    with pooler.folder() as folder:
        yield lambda **options: running_pooler(database_url, folder, **options)


async def opened(engine: AsyncEngine, *, listen_url: str | None = None) -> tuple[Capabilities, bool]:
    """Open a driver over an engine; gives what it says of the store, and whether plans are its own to choose."""
    driver = PostgresDriver(engine, listen_url=listen_url, owns_engine=True)
    try:
        await driver.open()
        return driver.capabilities, driver._db.plans_are_ours
    finally:
        await driver.close()


async def test_a_direct_connection_is_seen_to_be_one(database_url: str) -> None:
    capabilities, plans_are_ours = await opened(create_engine(database_url))
    assert capabilities.pooled is None
    assert capabilities.can_listen
    assert plans_are_ours


async def test_refused_settings_are_done_without_and_named(pooled_url: str) -> None:
    capabilities, plans_are_ours = await opened(create_engine(pooled_url))
    assert capabilities.pooled is not None
    assert capabilities.pooled.missing == ALL
    assert not capabilities.can_listen
    assert not plans_are_ours


async def test_settings_that_are_swallowed_in_silence_are_missed_all_the_same(start: Start, database_url: str) -> None:
    with start(ignore_startup_parameters=", ".join([*ALL, "synchronous_commit"])) as swallowing:
        capabilities, plans_are_ours = await opened(create_engine(swallowing.url(database_url)))
    assert capabilities.pooled is not None
    assert capabilities.pooled.missing == ALL
    assert not plans_are_ours


async def test_settings_of_the_database_stand_in_for_those_that_do_not_arrive(
    pooled_url: str, database_url: str
) -> None:
    for name in ALL:
        await _set(database_url, name, "off" if name.startswith(("enable", "jit")) else "20s")
    capabilities, plans_are_ours = await opened(create_engine(pooled_url), listen_url=database_url)
    assert capabilities.pooled is not None
    assert capabilities.pooled.missing == ()
    assert capabilities.can_listen
    assert plans_are_ours


async def test_a_database_that_answers_before_the_disk_has_it_is_refused(pooled_url: str, database_url: str) -> None:
    await _set(database_url, "synchronous_commit", "off")
    with pytest.raises(SettingsInvalid, match="synchronous_commit"):
        await opened(create_engine(pooled_url))
    with pytest.raises(SettingsInvalid, match="synchronous_commit"):
        await opened(create_async_engine(database_url))  # somebody's engine, which sends no settings of ours
    await opened(create_engine(database_url))  # the startup packet has the last word


# --- prepared statements


async def test_statements_have_names_only_where_the_pooler_looks_after_them(pooled_url: str) -> None:
    kept = pooler.version() >= pooler.KEEPS_STATEMENTS
    connection = await connect(pooled_url, application_name="test")
    assert await is_pooled(connection)
    assert await statements_of(connection) is (Statements.MANAGED if kept else Statements.UNNAMED)
    await connection.close()
    capabilities, _ = await opened(create_engine(pooled_url))
    assert capabilities.pooled is not None
    assert capabilities.pooled.keeps_statements is kept


async def test_a_pooler_told_to_keep_no_statements_is_found_out(start: Start, database_url: str) -> None:
    options = {"max_prepared_statements": "0"} if pooler.version() >= pooler.KEEPS_STATEMENTS else {}
    with start(**options) as forgetful:
        capabilities, _ = await opened(create_engine(forgetful.url(database_url)))
        assert capabilities.pooled is not None
        assert not capabilities.pooled.keeps_statements


async def test_the_url_has_the_last_word_on_prepared_statements(pooled_url: str, database_url: str) -> None:
    for url, said, expected in (
        (database_url, 0, Statements.UNNAMED),
        (database_url, 5, Statements.OURS),
        (pooled_url, 0, Statements.UNNAMED),
    ):
        engine = create_engine(f"{url}&prepared_statement_cache_size={said}")
        raw = await engine.raw_connection()
        assert await statements_of(raw.driver_connection) is expected
        raw.close()
        await engine.dispose()


async def test_an_engine_whose_statements_would_be_mixed_up_is_refused(start: Start, database_url: str) -> None:
    options = {"max_prepared_statements": "0"} if pooler.version() >= pooler.KEEPS_STATEMENTS else {}
    with start(**options) as forgetful:
        dsn = dsn_of(forgetful.url(database_url)).partition("?")[0].replace("postgresql", "postgresql+asyncpg")
        with pytest.raises(SettingsInvalid, match="prepared statements"):
            await opened(create_async_engine(dsn))
        fitting = {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
        capabilities, _ = await opened(create_async_engine(dsn, connect_args=fitting))
        assert capabilities.pooled is not None


# --- migrations


async def test_migrations_go_up_and_down_through_a_pooler_whatever_the_limits_there(
    transaction_pooler: Pooler, empty_database_url: str
) -> None:
    url = transaction_pooler.url(empty_database_url)
    await _set(empty_database_url, "statement_timeout", "20s")
    await migrations.upgrade(url)
    assert await migrations.check(url) == ()
    async with migrations.connection_for(url) as connection:
        assert (await connection.exec_driver_sql("show statement_timeout")).scalar_one() == "30min"
    await migrations.downgrade(url, revision="base")
    assert await migrations.current(url) is None


async def _set(database_url: str, name: str, value: str) -> None:
    """Give a database a default for a setting; sessions that begin from now on have it."""
    admin = await asyncpg.connect(dsn_of(database_url))
    database = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {database} set {name} = '{value}'")
    await admin.close()
