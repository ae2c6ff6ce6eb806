"""A database that a test hands on is as new, or is not handed on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from app.domain.outcome import Completed
from app.drivers.postgres.connect import dsn_of
from tests.support.drivers import postgres_env
from tests.support.postgres import Server

_TABLES = "select relname from pg_class where relnamespace = 'outlast'::regnamespace and relkind = 'r' order by 1"
_PAGES = """
select relname, pg_relation_size(oid) as bytes, relpages, reltuples from pg_class
where relnamespace = 'outlast'::regnamespace and relkind = 'r' order by 1
"""
_SEQUENCES = "select sequencename, last_value from pg_sequences order by 1"
_FUNCTIONS = "select proname, prosrc from pg_proc where pronamespace = 'outlast'::regnamespace order by 1"
_COUNTED = """
select relname from pg_stat_user_tables
where n_tup_ins + n_tup_upd + n_tup_del + seq_scan + coalesce(idx_scan, 0) + n_dead_tup > 0
"""

_CHANGES = {
    "a column": "alter table outlast.job add column mark int",
    "a column's type": "alter table outlast.job_name alter column name type varchar(900)",
    "a column's absence": "alter table outlast.webhook drop column url cascade",
    "a default": "alter table outlast.job alter column priority set default 9",
    "a comment": "comment on table outlast.job is 'mine'",
    "a constraint": "alter table outlast.job_name add constraint mine check (name <> '')",
    "a database's limit": "alter database {database} connection limit 30",
    "a database's setting": "alter database {database} set statement_timeout = '3s'",
    "a function": "create function outlast.mine() returns int language sql as 'select 1'",
    "a function's absence": "drop function outlast.limit_standing cascade",
    "a grant": "grant select on outlast.job to public",
    "a grant on a column": "grant select (id) on outlast.job to public",
    "a grant on the schema": "grant usage on schema outlast to public",
    "a large object": "select lo_create(0)",
    "a policy": "create policy mine on outlast.job using (true)",
    "a schema": "create schema mine",
    "a sequence": "create sequence public.mine",
    "a sequence's step": "alter sequence outlast.token_seq increment by 7",
    "a storage option": "alter table outlast.job set (fillfactor = 40)",
    "a table's size": "truncate outlast.ready",
    "a table": "create table public.mine (id int)",
    "a trigger": "create trigger mine before insert on outlast.job for each row execute function outlast.into_gate()",
    "a type": "create type public.mine as enum ('a')",
    "a view": "create view public.mine as select 1 as one",
    "an extension's absence": "drop extension plpgsql cascade",
    "an index": "create index mine on outlast.job (id)",
    "an index's absence": "drop index outlast.job_parent",
    "an index's validity": "update pg_index set indisvalid = false where indexrelid = 'outlast.job_parent'::regclass",
    "row security": "alter table outlast.job force row level security",
    "statistics": "insert into outlast.job_name (name) select i::text from generate_series(1, 100) i; analyze",
    "switched-off triggers": "alter table outlast.job disable trigger all",
}


@asynccontextmanager
async def _connected(server: Server, name: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn_of(server.url(name)))
    try:
        yield connection
    finally:
        await connection.close()


async def _everything(server: Server, name: str) -> dict[str, object]:
    """Give all that a test could find in a database."""
    async with _connected(server, name) as connection:
        counted = await connection.fetch(_COUNTED)
        tables = [table for (table,) in await connection.fetch(_TABLES)]
        rows = {table: await connection.fetch(f"select * from outlast.{table} order by 1") for table in tables}
        return {
            "rows": rows,
            "sequences": await connection.fetch(_SEQUENCES),
            "functions": await connection.fetch(_FUNCTIONS),
            "pages": await connection.fetch(_PAGES),
            "counted": counted,
        }


async def _used(server: Server, name: str) -> None:
    """Leave something in every table and every sequence, another clock, and marks that have moved."""
    async with postgres_env(server.url(name)) as env:
        await env.close_attempt((await env.running()).token, Completed())
        await env.set_clock(env.now())
    async with _connected(server, name) as connection, connection.transaction():
        await connection.execute("set local session_replication_role = replica")
        await connection.execute("update outlast.purge_mark set rests_until = now() where kind = 'jobs'")
        await connection.execute("delete from outlast.purge_mark where kind = 'keys'")
        for (sequence,) in await connection.fetch("select sequencename from pg_sequences"):
            await connection.execute(f"select nextval('outlast.{sequence}')")


@pytest.fixture
def handed(postgres_server: Server) -> Iterator[str]:
    """A database for a test to use and to hand back itself; it is dropped after it."""
    name = postgres_server.create()
    yield name
    postgres_server.drop(name)


async def test_a_database_handed_on_is_as_new(postgres_server: Server, handed: str) -> None:
    name = postgres_server.take()
    await _used(postgres_server, name)

    postgres_server.give_back(name)

    assert postgres_server.take() == name
    after = await _everything(postgres_server, name)
    new = await _everything(postgres_server, handed)
    assert after["pages"] == new["pages"]
    assert after == new
    postgres_server.give_back(name)


async def test_rows_rolled_back_leave_no_pages(postgres_server: Server) -> None:
    name = postgres_server.take()
    async with _connected(postgres_server, name) as connection:
        await connection.execute("begin; insert into outlast.job_name (name) values ('gone'); rollback")

    postgres_server.give_back(name)

    assert postgres_server.take() == name
    async with _connected(postgres_server, name) as connection:
        assert await connection.fetchval("select pg_relation_size('outlast.job_name')") == 0
        assert await connection.fetchval("insert into outlast.job_name (name) values ('next') returning id") == 1
    postgres_server.give_back(name)


@pytest.mark.parametrize("change", _CHANGES)
async def test_a_database_changed_beyond_its_rows_goes(postgres_server: Server, change: str) -> None:
    name = postgres_server.take()
    async with _connected(postgres_server, name) as connection:
        await connection.execute(_CHANGES[change].format(database=name))

    postgres_server.give_back(name)

    await _is_gone(postgres_server, name)


async def test_a_database_somebody_is_connected_to_goes(postgres_server: Server) -> None:
    name = postgres_server.take()
    stays = await asyncpg.connect(dsn_of(postgres_server.url(name)))

    postgres_server.give_back(name)

    await _is_gone(postgres_server, name)
    stays.terminate()


async def test_a_database_whose_sessions_a_test_ended_is_handed_on(postgres_server: Server) -> None:
    name = postgres_server.take()
    async with _connected(postgres_server, name) as connection:
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        await connection.execute("insert into outlast.job_name (name) values ('one')")

    postgres_server.give_back(name)

    assert postgres_server.take() == name
    async with _connected(postgres_server, name) as connection:
        assert await connection.fetchval("select count(*) from outlast.job_name") == 0
    postgres_server.give_back(name)


async def _is_gone(server: Server, name: str) -> None:
    following = server.take()
    assert following != name
    async with _connected(server, following) as connection:
        assert not await connection.fetchval("select exists (select from pg_database where datname = $1)", name)
    server.give_back(following)
