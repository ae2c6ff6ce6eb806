"""Tables of applications in the database of the jobs: rows that are over are deleted, page by page.

A step reads a stretch of the table's pages and deletes the rows there whose time is past, passing over what others
hold: it needs no index and costs the same however much is kept. Names come from the code of job types and stand quoted
in the SQL; they are looked up first, and Outlast's own tables are refused. The table's triggers and foreign keys apply.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import NamedTuple

import asyncpg

from ...domain.errors import OutlastError, SettingsInvalid
from ...domain.retention import TableRule, Tidied
from .database import Database, Raw
from .purge_mark import MAKE, MARK, MOVE, take_step
from .tables import metadata

_FIND = """
select n.nspname, c.relname, c.relkind = 'r' as is_table, format_type(a.atttypid, null) as kind,
  pg_relation_size(c.oid) / current_setting('block_size')::int as pages
from pg_class c join pg_namespace n on n.oid = c.relnamespace
left join pg_attribute a on a.attrelid = c.oid and a.attname = $2 and a.attnum > 0 and not a.attisdropped
where c.oid = to_regclass($1)"""

_TIMES = {
    "timestamp with time zone": "{column}",
    "timestamp without time zone": "({column} at time zone 'UTC')",
    "date": "({column}::timestamp at time zone 'UTC')",
}
_SYSTEM = frozenset({"pg_catalog", "information_schema"})

_PLACE = f"with {MARK.strip()}\nselect coalesce(m.after, '0')::bigint from m"
_BEHIND = "select outlast.clock() - coalesce(p.round_at, p.made_at) from outlast.purge_mark p where p.kind = $1"
_DELETE = """
with d as materialized (
  select t.ctid from {table} t where t.ctid >= {low}::tid and t.ctid < {high}::tid
    and {time} < outlast.clock() - $1::interval
  for update skip locked),
gone as (delete from {table} t where t.ctid = any(array(select ctid from d)) returning true)
select count(*) from gone"""
_MOVE = f"""
with {MARK.strip()},
o as materialized (
  select $4::bigint as deleted, $5::boolean as is_over, $6::text as last, null::int as low from m),{MOVE}"""  # noqa: S608  same
_COUNT = "select count(*) from {table} t where {time} < outlast.clock() - $1::interval"


class _Table(NamedTuple):
    """A table as it stands in SQL, and how many pages it has."""

    table: str
    time: str
    pages: int

    def filled(self, sql: str, *, page: int = 0, blocks: int = 0) -> str:
        """Give a statement about it, or about `blocks` of its pages from `page` on."""
        low, high = f"'({page},0)'", f"'({page + blocks},0)'"
        return (
            sql.replace("{table}", self.table)
            .replace("{time}", self.time)
            .replace("{low}", low)
            .replace("{high}", high)
        )


async def tidy_table(db: Database, rule: TableRule, *, blocks: int, rest: timedelta, now: bool) -> Tidied:
    """Take one step of the round over a table, and keep its place in the same commit."""
    kind = f"table {rule.table}"

    async def once(conn: Raw) -> Tidied:
        async with conn.transaction(isolation="read_committed"):
            page = await conn.fetchval(db.in_schema(_PLACE), kind, now)
            if page is None:
                await conn.execute(db.in_schema(MAKE), kind)
                page = await conn.fetchval(db.in_schema(_PLACE), kind, now)
            if page is None:
                behind = await conn.fetchval(db.in_schema(_BEHIND), kind)
                return Tidied(0, is_over=True, behind=behind, is_idle=True)
            found = await _found(db, conn, rule)
            sql = db.in_schema(found.filled(_DELETE, page=page, blocks=blocks))
            try:
                deleted = await conn.fetchval(sql, rule.older_than)
            except asyncpg.ForeignKeyViolationError as exc:
                fix = "purge the table that refers to it first, or declare its key with on delete cascade"
                raise _refusal(rule, "rows of another table refer to what would be deleted", fix) from exc
            following = page + blocks
            binds = (True, rest, deleted, following >= found.pages, str(following))
            return await take_step(db, conn, db.in_schema(_MOVE), kind, *binds)

    return await db.run(once)


async def count_table(db: Database, rule: TableRule) -> int:
    """Count the rows of a table that are over."""

    async def once(conn: Raw) -> int:
        found = await _found(db, conn, rule)
        count: int = await conn.fetchval(db.in_schema(found.filled(_COUNT)), rule.older_than)
        return count

    return await db.run(once)


async def _found(db: Database, conn: Raw, rule: TableRule) -> _Table:
    quoted = ".".join(f'"{part}"' for part in rule.parts)
    row = await conn.fetchrow(_FIND, quoted, rule.column)
    if row is None:
        raise _refusal(rule, "there is no such table in the database of the jobs", "create it, or correct its name")
    if row["nspname"] in _SYSTEM or (row["nspname"] == db.schema and row["relname"] in _own_tables()):
        raise _refusal(rule, "it is not a table of the application's", "name a table of your own")
    if not row["is_table"]:
        raise _refusal(rule, "it is no plain table", "name its partitions, or the table behind the view")
    if row["kind"] not in _TIMES:
        what = "it has no such column" if row["kind"] is None else f"the column is a {row['kind']}"
        raise _refusal(rule, what, "name a column of type timestamptz, timestamp or date with column=")
    return _Table(quoted, _TIMES[row["kind"]].replace("{column}", f't."{rule.column}"'), row["pages"])


@cache
def _own_tables() -> frozenset[str]:
    """Give Outlast's own; an application may have tables beside them, by a search path that leads there first."""
    return frozenset(table.name for table in metadata().tables.values()) | {"alembic_version"}


def _refusal(rule: TableRule, what: str, fix: str) -> OutlastError:
    return SettingsInvalid(f"purge({rule.table!r}, column={rule.column!r}) cannot work: {what}", fix=fix)
