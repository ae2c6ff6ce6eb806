"""The way to the database: what is refused at construction, and which connections are kept."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import create_engine as create_sync_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.domain.errors import (
    DriverUnavailable,
    RequestInvalid,
    SchemaOutdated,
    SettingsInvalid,
)
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.database import Database, create_engine
from app.drivers.postgres.driver import PostgresDriver

URL = "postgresql+asyncpg://user:secret@host:5432/database"


# Whether connections are kept at hand; every test below runs both ways.
is_alone: ContextVar[bool] = ContextVar("is_alone")


@pytest.fixture(autouse=True, params=[True, False], ids=["kept", "given back"])
def _hands(request: pytest.FixtureRequest) -> Iterator[None]:
    token = is_alone.set(request.param)
    yield
    is_alone.reset(token)


@asynccontextmanager
async def opened(url: str, *, command_timeout: timedelta = timedelta(seconds=5)) -> AsyncIterator[Database]:
    engine = create_engine(url, pool_size=1, application_name="under test", command_timeout=command_timeout)
    db = Database(engine, is_alone=is_alone.get())
    try:
        yield db
    finally:
        await db.close()
        await engine.dispose()


async def backend(db: Database) -> int:
    async with db.raw() as conn:
        pid: int = await conn.fetchval("select pg_backend_pid()")
        return pid


@asynccontextmanager
async def watcher(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn_of(url))
    try:
        yield connection
    finally:
        await connection.close()


async def gone(connection: asyncpg.Connection, pid: int) -> None:
    """Come back when a server process has ended."""
    async with asyncio.timeout(10):
        while await connection.fetchval("select count(*) from pg_stat_activity where pid = $1", pid):
            pass


# --- refused at construction


@pytest.mark.parametrize(
    "make",
    [
        lambda: create_sync_engine("sqlite://"),
        lambda: create_engine(URL).sync_engine.pool,
        lambda: create_engine(URL).sync_engine,
        lambda: URL,
        lambda: None,
    ],
    ids=["sync engine", "bare pool", "inner engine", "url", "nothing"],
)
def test_what_is_not_an_async_engine_is_refused_with_the_repair(make: Callable[[], AsyncEngine]) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        PostgresDriver(make())
    assert "create_async_engine" in refused.value.fix


async def test_a_disposed_engine_is_refused() -> None:
    engine = create_engine(URL)
    PostgresDriver(engine)
    await engine.dispose()
    with pytest.raises(SettingsInvalid, match="disposed"):
        PostgresDriver(engine)


@pytest.mark.parametrize("schema", ["", "A", 'x"; drop schema public; --', "a.b"])
def test_a_schema_that_cannot_stand_in_sql_is_refused(schema: str) -> None:
    with pytest.raises(SettingsInvalid, match="OUTLAST_SCHEMA"):
        PostgresDriver(create_engine(URL), schema=schema)


@pytest.mark.parametrize(
    "url", ["mysql://host/database", "sqlite://", "not a url", "redis://host", "postgresql://h:x/d"]
)
def test_a_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="OUTLAST_DATABASE_URL"):
        create_engine(url)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("postgresql+asyncpg://u:p@h/d?ssl=require", "postgresql://u:p@h/d?sslmode=require"),
        ("postgres://h/d", "postgresql://h/d"),
        ("postgresql+psycopg://h/d?sslmode=disable", "postgresql://h/d?sslmode=disable"),
        ("postgresql+asyncpg://h/d?prepared_statement_cache_size=0", "postgresql://h/d"),
        ("postgresql://u:p%40ss@h/d", "postgresql://u:p%40ss@h/d"),
    ],
)
def test_urls_are_read_whatever_driver_they_name(given: str, read: str) -> None:
    assert dsn_of(given) == read


# --- which connections are kept


@pytest.mark.postgres
async def test_sessions_are_bounded_by_the_server_too(database_url: str) -> None:
    async with opened(database_url, command_timeout=timedelta(seconds=7)) as db, db.raw() as conn:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "jit", "application_name")
        found = [await conn.fetchval("select current_setting($1)", name) for name in names]
    assert found == ["7s", "5s", "10s", "off", "under test"]


@pytest.mark.postgres
async def test_statements_commit_by_themselves(database_url: str) -> None:
    async with opened(database_url) as db:

        async def fails_after_a_write() -> None:
            async with db.raw() as conn:
                await conn.execute("insert into outlast.job_name(name) values ('kept')")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fails_after_a_write()
        async with db.raw() as conn:
            assert await conn.fetchval("select count(*) from outlast.job_name") == 1


@pytest.mark.postgres
async def test_a_refusal_keeps_the_connection(database_url: str) -> None:
    async with opened(database_url) as db:
        first = await backend(db)
        for sql, kind in (("select 1/0", RequestInvalid), ("select from nowhere", SchemaOutdated)):
            with pytest.raises(kind):
                async with db.raw() as conn:
                    await conn.execute(sql)
        assert await backend(db) == first


@pytest.mark.postgres
async def test_a_server_that_only_reads_is_driver_unavailable_and_its_connection_goes(database_url: str) -> None:
    async with opened(database_url) as db:
        first = await backend(db)
        async with db.raw() as conn:
            await conn.execute("set default_transaction_read_only = on")
        with pytest.raises(DriverUnavailable, match="25006"):
            async with db.raw() as conn:
                await conn.execute("insert into outlast.job_name(name) values ('x')")
        assert await backend(db) != first


@pytest.mark.postgres
async def test_a_connection_left_in_a_transaction_is_thrown_away(database_url: str) -> None:
    async with opened(database_url) as db:
        first = await backend(db)
        async with db.raw() as conn:
            await conn.execute("begin")
            await conn.execute("insert into outlast.job_name(name) values ('lost')")
        assert await backend(db) != first
        async with db.raw() as conn:
            assert await conn.fetchval("select count(*) from outlast.job_name") == 0


@pytest.mark.postgres
async def test_a_cancelled_call_leaves_no_broken_connection_in_the_pool(database_url: str) -> None:
    async with opened(database_url) as db, watcher(database_url) as other:

        async def stuck() -> None:
            async with db.raw() as conn:
                await conn.execute("select pg_sleep(30)")

        for _ in range(3):
            pid = await backend(db)
            task = asyncio.create_task(stuck())
            async with asyncio.timeout(10):
                while not await other.fetchval(
                    "select count(*) from pg_stat_activity where pid = $1 and query like '%pg_sleep%'", pid
                ):
                    pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The pool holds one connection: whoever gets it next must be able to use it at once.
            async with asyncio.timeout(5):
                assert await backend(db) != pid


@pytest.mark.postgres
async def test_a_terminated_backend_is_driver_unavailable_and_replaced(database_url: str) -> None:
    async with opened(database_url) as db, watcher(database_url) as other:
        pid = await backend(db)

        async def is_terminated() -> None:
            async with db.raw() as conn:
                await other.execute("select pg_terminate_backend($1)", pid)
                await gone(other, pid)
                await conn.fetchval("select 1")

        with pytest.raises(DriverUnavailable):
            await is_terminated()
        assert await backend(db) != pid


@pytest.mark.postgres
async def test_a_connection_closed_while_idle_costs_no_call(database_url: str) -> None:
    async with opened(database_url) as db, watcher(database_url) as other:
        pid = await backend(db)
        async with db.raw() as conn:
            closed = asyncio.Event()
            cast("Any", conn).add_termination_listener(lambda _: closed.set())
        await other.execute("select pg_terminate_backend($1)", pid)
        async with asyncio.timeout(10):
            await closed.wait()
        assert await backend(db) != pid


@pytest.mark.postgres
async def test_a_stopped_backend_is_driver_unavailable_in_time(database_url: str) -> None:
    async with opened(database_url, command_timeout=timedelta(milliseconds=500)) as db:
        pid = await backend(db)
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(5):
                with pytest.raises(DriverUnavailable, match="in time"):
                    await backend(db)
                assert await backend(db) != pid
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.postgres
async def test_an_empty_pool_is_driver_unavailable(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(database_url) as db:
        monkeypatch.setattr(db.engine.sync_engine.pool, "_timeout", 0.05)
        async with db.raw():
            with pytest.raises(DriverUnavailable):
                await backend(db)


@pytest.mark.postgres
async def test_a_closed_driver_answers_that_it_is_closed(database_url: str) -> None:
    engine = create_engine(database_url)
    driver = PostgresDriver(engine)
    await driver.open()
    await driver.close()
    with pytest.raises(DriverUnavailable, match="closed"):
        await driver.ping()
    await engine.dispose()


@pytest.mark.postgres
async def test_an_engine_of_the_callers_own_is_used_as_it_is(database_url: str) -> None:
    engine = create_async_engine(database_url)
    driver = PostgresDriver(engine)
    await driver.open()
    await driver.pause_queue("mail", by="me")
    assert [view.name for view in await driver.queues()] == ["mail"]
    await driver.close()
    await engine.dispose()


@pytest.mark.postgres
async def test_contention_is_tried_again_and_then_given_up(database_url: str) -> None:
    async with opened(database_url) as db:
        calls = 0

        async def contended(_: object) -> int:
            nonlocal calls
            calls += 1
            if calls < 3:
                raise asyncpg.PostgresError.new({"C": "40P01", "M": "deadlock detected"})
            return calls

        assert await db.run(contended) == 3
        calls = -10
        with pytest.raises(DriverUnavailable):
            await db.run(contended)
        assert calls == -6


@pytest.mark.postgres
async def test_a_connection_the_server_refuses_is_driver_unavailable(database_url: str) -> None:
    """What a pool's connection attempt raises is of a family of its own, apart from a statement's errors."""
    absent = make_url(database_url).set(database="there_is_no_such_database")
    driver = PostgresDriver(create_engine(absent.render_as_string(hide_password=False)), owns_engine=True)
    with pytest.raises(DriverUnavailable, match="3D000"):
        await driver.open()
    await driver.close()
    stranger = make_url(database_url).set(username="there_is_no_such_role")
    driver = PostgresDriver(create_engine(stranger.render_as_string(hide_password=False)), owns_engine=True)
    with pytest.raises(DriverUnavailable, match="28"):
        await driver.ping()
    await driver.close()


@pytest.mark.postgres
async def test_a_server_without_a_free_connection_is_driver_unavailable(database_url: str) -> None:
    role = f"crowded_{uuid4().hex}"
    engine = create_engine(database_url, pool_size=1)
    async with engine.connect() as admin:
        await admin.exec_driver_sql(f"create role {role} login connection limit 0")
        crowded = make_url(database_url).set(username=role)
        driver = PostgresDriver(create_engine(crowded.render_as_string(hide_password=False)), owns_engine=True)
        try:
            with pytest.raises(DriverUnavailable, match="53300") as refused:
                await driver.ping()
            assert refused.value.retryable
        finally:
            await driver.close()
            await admin.exec_driver_sql(f"drop role {role}")
    await engine.dispose()
