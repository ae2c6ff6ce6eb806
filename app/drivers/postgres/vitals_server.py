"""What the server and the schema tell of their health: settings, connections, who holds the horizon, tables, indexes.

Reads catalogs and statistics only, so that it answers for a schema that is not there or is another's. Judges nothing.
Called by `vitals`.
"""

from __future__ import annotations

import json

from sqlalchemy import Index
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex

from ...domain.vitals import Holder, HolderKind, IndexTrouble, ServerVitals, SlotVitals, TableVitals
from .database import Database, Raw, Row
from .pooler import is_pooled, missing_settings, pooled_by
from .tables import REQUIRED_REVISION, metadata
from .vitals_wall import wall_vitals

_SETTINGS = ("autovacuum", "fsync", "full_page_writes", "synchronous_commit", "track_counts")

# PostgreSQL 16 keeps some connections for a role of its own kind as well.
_SERVER = """
select current_setting('server_version_num')::int as version, current_database() as database, current_user as role,
  pg_is_in_recovery() as is_standby, current_setting('transaction_read_only') = 'on' as is_read_only,
  least(
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
      - coalesce(current_setting('reserved_connections', true), '0')::int,
    (select nullif(datconnlimit, -1) from pg_database where datname = current_database()),
    (select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user)) as available,
  (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
  (select jsonb_object_agg(name, setting)::text from pg_settings where name = any($1::text[])) as settings"""
_CLOCK = "select outlast.clock() = statement_timestamp()"

# What the role may not do that every process does; read from the catalogs, which it may.
_DENIED = """
select format('grant usage on schema %I to %I', n.nspname, current_user) as statement, 0 as place
from pg_namespace n where n.nspname = $1 and not has_schema_privilege(n.oid, 'usage')
union all
select format('grant select, insert, update, delete on all tables in schema %I to %I', $1::text, current_user), 1
where exists (
  select from pg_class c
  where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relkind = 'r' and c.relname <> 'alembic_version'
    and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
      and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')))
  or exists (
    select from pg_class c
    where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relname = 'alembic_version'
      and not has_table_privilege(c.oid, 'select'))
union all
select format('grant usage on all sequences in schema %I to %I', $1::text, current_user), 2
where exists (
  select from pg_class c
  where c.relnamespace = to_regnamespace(quote_ident($1))
    and case when c.relkind = 'S' then not has_sequence_privilege(c.oid, 'usage') else false end)
order by place"""

# Of this database: what another's sessions see, it does not keep here. Of sessions of other roles
# the server tells everybody how many transactions ago, and members of pg_read_all_stats alone since when and of what
# kind they are; those of nobody are vacuum's.
HOLDERS = """
select 'transaction' as kind, a.pid::text as name, a.application_name as application,
  case when a.xact_start is not null then greatest(clock_timestamp() - a.xact_start, interval '0') end as age,
  greatest(age(a.backend_xmin), age(a.backend_xid)) as xids
from pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid()
  and (a.backend_xmin is not null or a.backend_xid is not null)
  and (a.backend_type = 'client backend' or (a.backend_type is null and a.usesysid is not null))
union all
select 'prepared', p.gid, p.owner::text, greatest(clock_timestamp() - p.prepared, interval '0'), age(p.transaction)
from pg_prepared_xacts p where p.database = current_database()
union all
select 'slot', s.slot_name::text,
  case when s.active_pid is not null then coalesce(nullif(r.application_name, ''), 'process ' || s.active_pid) end,
  null, age(s.xmin)
from pg_replication_slots s left join pg_stat_replication r on r.pid = s.active_pid where s.xmin is not null"""
_HOLDERS = f"{HOLDERS}\norder by 5 desc nulls last limit 20"
_SLOTS = """
select slot_name::text as name,
  pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
    restart_lsn)::bigint as kept
from pg_replication_slots where not active and restart_lsn is not null order by 2 desc"""
_TABLES = """
select c.relname::text as name, coalesce(s.n_live_tup, 0) as live, coalesce(s.n_dead_tup, 0) as dead,
  not coalesce('autovacuum_enabled=false' = any(c.reloptions) or 'autovacuum_enabled=off' = any(c.reloptions), false)
    as is_vacuumed,
  greatest(s.last_vacuum, s.last_autovacuum) as vacuumed_at
from pg_class c left join pg_stat_all_tables s on s.relid = c.oid
where c.relkind = 'r' and c.relnamespace = to_regnamespace(quote_ident($1)) order by c.relname"""
_INDEXES = """
select c.relname::text as name, i.indisvalid and i.indisready as is_valid
from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = to_regnamespace(quote_ident($1))"""


async def server_vitals(db: Database, conn: Raw) -> ServerVitals:
    """Look at the server, and at the schema from outside."""
    server = await conn.fetchrow(_SERVER, list(_SETTINGS))
    assert server is not None, "it gives one row"  # noqa: S101 - see above
    denied = tuple(row["statement"] for row in await conn.fetch(_DENIED, db.schema))
    revision = None if denied else await revision_of(db, conn)
    has_clock = revision is not None
    missing = await missing_settings(conn)
    return ServerVitals(
        **{name: server[name] for name in ("version", "database", "role", "is_standby", "is_read_only")},
        schema=db.schema,
        revision=revision,
        required=REQUIRED_REVISION,
        is_clock_true=not has_clock or bool(await conn.fetchval(db.in_schema(_CLOCK))),
        settings=_settings_of(server["settings"]),
        denied=denied,
        available=server["available"],
        connections=server["connections"],
        pooled=await pooled_by(conn, missing) if await is_pooled(conn) else None,
        missing=missing,
        holders=tuple(_holder(row) for row in await conn.fetch(_HOLDERS)),
        slots=tuple(SlotVitals(name=row["name"], kept_bytes=row["kept"]) for row in await conn.fetch(_SLOTS)),
        tables=tuple(_table(row) for row in await conn.fetch(_TABLES, db.schema)),
        indexes=_troubles(db.schema, await conn.fetch(_INDEXES, db.schema)) if revision == REQUIRED_REVISION else (),
        wall=await wall_vitals(db, conn) if revision == REQUIRED_REVISION else None,
    )


async def revision_of(db: Database, conn: Raw) -> str | None:
    """Give the revision of the schema, None where there is none."""
    table = db.in_schema("outlast.alembic_version")
    if not await conn.fetchval("select to_regclass($1) is not null", table):
        return None
    found: str | None = await conn.fetchval(f"select version_num from {table}")  # noqa: S608  checked
    return found


def _settings_of(text: str | None) -> dict[str, str]:
    return {} if text is None else dict(json.loads(text))


def _holder(row: Row) -> Holder:
    return Holder(
        kind=HolderKind(row["kind"]),
        name=row["name"],
        application=row["application"] or None,
        age=row["age"],
        xids=row["xids"] or 0,
    )


def _table(row: Row) -> TableVitals:
    return TableVitals(**{name: row[name] for name in ("name", "live", "dead", "is_vacuumed", "vacuumed_at")})


def _troubles(schema: str, found: list[Row]) -> tuple[IndexTrouble, ...]:
    """Compare the indexes that there are with those of the code's tables."""
    valid = {row["name"]: row["is_valid"] for row in found}
    indexes = [index for table in metadata(schema).tables.values() for index in table.indexes]
    missing = [
        IndexTrouble(name=str(index.name), trouble="missing", statement=_made(index))
        for index in sorted(indexes, key=lambda index: str(index.name))
        if str(index.name) not in valid
    ]
    broken = [
        IndexTrouble(name=name, trouble="not valid", statement=f'reindex index "{schema}"."{name}"')
        for name, is_valid in sorted(valid.items())
        if not is_valid
    ]
    return (*missing, *broken)


def _made(index: Index) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's own
    return " ".join(str(CreateIndex(index).compile(dialect=dialect)).split())
