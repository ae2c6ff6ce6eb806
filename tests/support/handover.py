"""A database handed on from one test to the next, which must not notice: emptied in a tenth of the time of a copy.

Owns what "as new" means. The tables have the pages and the rows of every new database and no others, sequences stand at
their start, the clock tells the time, statistics are forgotten, and nobody is connected. What a test does beyond rows
(another column, an index, a grant, a setting, statistics of `analyze`) is not undone but seen: such a database goes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import asyncpg

_SCHEMA = "outlast"
# What a test may leave behind besides rows. `xmin` names who wrote a row of the catalogue, deletions show in the count;
# vacuum and analyze write in place. Truncation writes pg_class anew, `advance` the function `clock`: those by content.
_BY_WRITER = (
    "pg_attribute where attrelid >= 16384",
    "pg_attrdef",
    "pg_constraint where oid >= 16384",
    "pg_default_acl",
    "pg_description where objoid >= 16384",
    "pg_event_trigger",
    "pg_extension",
    "pg_index",
    "pg_inherits",
    "pg_namespace",
    "pg_policy",
    "pg_publication",
    "pg_rewrite where oid >= 16384",
    "pg_sequence",
    "pg_statistic_ext",
    "pg_trigger",
    "pg_type where oid >= 16384",
)
_SHAPE = f"""
select concat_ws(' ',
  {",".join(f"(select concat(count(*), '/', sum(xmin::text::bigint)) from {table})" for table in _BY_WRITER)},
  (select sum(hashtextextended(concat_ws('|', oid, relname, relnamespace, relowner, relkind, relpersistence, relnatts,
     relhasindex, relchecks, relhasrules, relhastriggers, relrowsecurity, relforcerowsecurity, reltablespace, relacl,
     reloptions), 0)) from pg_class where oid >= 16384 and relkind <> 't'),
  (select sum(hashtextextended(concat_ws('|', proname, pronamespace, proowner, prolang, proargtypes, prosecdef,
     provolatile, proparallel, proacl, proconfig, case when proname <> 'clock' then prosrc end), 0))
     from pg_proc where oid >= 16384),
  (select concat_ws('|', datdba, datallowconn, datconnlimit, datacl)
     from pg_database where datname = current_database()),
  (select count(*) from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
     where d.datname = current_database()),
  (select count(*) from pg_statistic where starelid >= 16384),
  (select count(*) from pg_largeobject_metadata),
  (select count(*) from pg_prepared_xact() x join pg_database d on d.oid = x.dbid
     where d.datname = current_database()),
  (select count(*) from pg_replication_slots where database = current_database()))
"""
# Rolled-back rows have pages, too; every table without is as new.
_TOUCHED = f"""
select relname from pg_class
where relnamespace = '{_SCHEMA}'::regnamespace and relkind = 'r' and pg_relation_size(oid) > 0
"""
# Known once the sessions that wrote have ended.
_WRITTEN = f"""
select relname from pg_class
where relnamespace = '{_SCHEMA}'::regnamespace and relname = any($1::text[]) and pg_stat_get_tuples_inserted(oid) > 0
"""
_SIZES = f"""
select relname, pg_relation_size(oid) as size from pg_class
where relnamespace = '{_SCHEMA}'::regnamespace and relname = any($1::text[])
"""
_FORGET = f"""
select setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
  from pg_sequences where last_value is not null;
create or replace function {_SCHEMA}.clock() returns timestamptz language sql stable parallel safe
  as $$select statement_timestamp()$$;
select pg_stat_reset();
"""
_BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# A session ends a moment after its client has hung up.
_GOODBYES = 50
_GOODBYE_SECONDS = 0.002


class LeftBehind(Exception):
    """A database cannot be handed on; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """What a new database looks like: its shape, and the rows it comes with by table, as JSON.

    `grown` are the tables that have pages without a row, by which the planner takes them for large, with their bytes.
    """

    shape: str
    rows: dict[str, str]
    grown: dict[str, int]


class Keeper:
    """Knows one database from its first minute, and makes it again what it was then.

    Its session stays while a test has the database: another one would take three times as long to learn the catalogue.
    """

    def __init__(self, url: str) -> None:
        self._url = urlunsplit(urlsplit(url)._replace(scheme="postgresql"))
        self._session: asyncpg.Connection | None = None
        self._fresh: Fresh | None = None

    async def learn(self) -> None:
        """Look at the database, which nobody has used yet."""
        session = await self._connected()
        rows = {table: await _rows(session, table) for table in await _touched(session)}
        self._fresh = Fresh(
            shape=await session.fetchval(_SHAPE),
            rows={table: found for table, found in rows.items() if found != "[]"},
            grown=await _sizes(session, [table for table, found in rows.items() if found == "[]"]),
        )

    async def make_fresh(self) -> None:
        """Take every trace of a test out of the database.

        Raises:
            LeftBehind: it has been changed beyond its rows, or somebody is connected still.
        """
        assert self._fresh is not None
        try:
            session = await self._alone()
            if await session.fetchval(_SHAPE) != self._fresh.shape:
                message = "its shape was changed"
                raise LeftBehind(message)
            await _empty(session, self._fresh)
            await session.execute(_FORGET)
        except _BROKEN as error:
            raise LeftBehind(str(error)) from error

    async def leave(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()

    async def _alone(self) -> asyncpg.Connection:
        session = await self._connected()
        try:
            await _alone(session)
        except _BROKEN:  # a test that ends every session of its database ends this one, too
            session.terminate()
            session = await self._connected()
            await _alone(session)
        return session

    async def _connected(self) -> asyncpg.Connection:
        if self._session is None or self._session.is_closed():
            self._session = await asyncpg.connect(
                self._url, timeout=10, server_settings={"application_name": "tests", "lock_timeout": "1000"}
            )
        return self._session


async def _alone(session: asyncpg.Connection) -> None:
    sessions = "select pg_stat_get_db_numbackends(oid) from pg_database where datname = current_database()"
    for _ in range(_GOODBYES):
        if await session.fetchval(sessions) == 1:
            return
        await asyncio.sleep(_GOODBYE_SECONDS)
    message = "somebody is connected still"
    raise LeftBehind(message)


async def _empty(session: asyncpg.Connection, fresh: Fresh) -> None:
    touched = set(await _touched(session)) - fresh.grown.keys()
    unchanged = {table for table, rows in fresh.rows.items() if await _rows(session, table) == rows}
    if truncated := sorted(touched - unchanged):
        await session.execute(f"truncate {', '.join(f'{_SCHEMA}.{table}' for table in truncated)}")
    for (table,) in await session.fetch(_WRITTEN, list(fresh.grown)):
        await session.execute(f"delete from {_SCHEMA}.{table}")
        await session.execute(f"vacuum {_SCHEMA}.{table}")
    for table in fresh.rows.keys() - unchanged:
        await session.execute(
            f"insert into {_SCHEMA}.{table} select * from json_populate_recordset(null::{_SCHEMA}.{table}, $1)",
            fresh.rows[table],
        )
    left = set(await _touched(session)) - fresh.rows.keys() - fresh.grown.keys()
    for table in sorted(fresh.grown):
        if await session.fetchval(f"select exists (select from {_SCHEMA}.{table})"):
            left.add(table)
    if await _sizes(session, list(fresh.grown)) != fresh.grown:
        message = "tables have become larger or smaller"
        raise LeftBehind(message)
    if left:
        message = f"rows are left in {', '.join(sorted(left))}"
        raise LeftBehind(message)


async def _touched(session: asyncpg.Connection) -> list[str]:
    return [name for (name,) in await session.fetch(_TOUCHED)]


async def _rows(session: asyncpg.Connection, table: str) -> str:
    rows: str = await session.fetchval(f"select coalesce(json_agg(t), '[]') from {_SCHEMA}.{table} t")
    return rows


async def _sizes(session: asyncpg.Connection, tables: list[str]) -> dict[str, int]:
    return {row["relname"]: row["size"] for row in await session.fetch(_SIZES, tables)}
