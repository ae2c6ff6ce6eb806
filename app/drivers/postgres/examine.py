"""Is this a database our promises can be kept on? Asked once, when the driver opens, of the connection verbs will use.

Owns the refusals: a server too old, a schema too old, commits that do not reach the disk, and prepared statements
behind a pooler that would mix them up. What merely costs speed or a limit is reported, not refused.
"""

from __future__ import annotations

from ...domain.errors import SchemaOutdated, SettingsInvalid
from ...domain.pooled import Pooled
from .connect import STATEMENT_CACHE, statement_cache_of
from .database import Database, Raw
from .pooler import PLANNING, Statements, is_pooled, missing_settings, statements_of
from .sqlstate import MIGRATE
from .tables import REQUIRED_REVISION
from .tenant_wall import find_wall

_OLDEST_SERVER = 150_000


async def examine(db: Database) -> Pooled | None:
    """Give what connections go through; None when they reach the server itself.

    Raises:
        SchemaOutdated: migrations are missing; a schema newer than the code is fine.
        SettingsInvalid: the server is older than PostgreSQL 15, a commit would not be on disk when it is answered, or
            the engine names its statements behind a pooler that does not manage them.
    """
    async with db.raw() as conn:
        missing = await missing_settings(conn)
        pooled = await _pooled(db, conn, missing)
        db.plans_are_ours = PLANNING.isdisjoint(missing)
        await _check_server(conn)
        await _check_schema(db, conn)
        db.api_role = await find_wall(db, conn)
    return pooled


async def _pooled(db: Database, conn: Raw, missing: tuple[str, ...]) -> Pooled | None:
    if not await is_pooled(conn):
        return None
    statements = await statements_of(conn)
    if statements is Statements.OURS and not statement_cache_of(db.url):
        raise SettingsInvalid(
            "connections go through a pooler that does not manage prepared statements, and the engine uses them",
            fix="make the engine with connect_args={'statement_cache_size': 0, 'prepared_statement_cache_size': 0}"
            f", or, where every connection has a server to itself, say {STATEMENT_CACHE}=100 in its URL",
        )
    return Pooled(keeps_statements=statements is not Statements.UNNAMED, missing=missing)


async def _check_server(conn: Raw) -> None:
    version = int(await conn.fetchval("select current_setting('server_version_num')"))
    if version < _OLDEST_SERVER:
        raise SettingsInvalid(
            f"the server is PostgreSQL {version // 10_000}",
            fix="point OUTLAST_DATABASE_URL at PostgreSQL 15 or newer",
        )
    # Ours is in the startup packet; a pooler may have dropped it, and another's engine does not send it.
    if await conn.fetchval("select current_setting('synchronous_commit')") == "off":
        raise SettingsInvalid(
            "the database answers commits before they are on disk (synchronous_commit is off): a server's crash would"
            " run jobs again that were claimed, and lose results that were stored",
            fix="run `alter role … set synchronous_commit = on` for the role of OUTLAST_DATABASE_URL",
        )


async def _check_schema(db: Database, conn: Raw) -> None:
    table = db.in_schema("outlast.alembic_version")
    found = await conn.fetchval("select to_regclass($1) is not null", table)
    revision = await conn.fetchval(f"select version_num from {table}") if found else None  # noqa: S608  checked
    if revision is None or revision < REQUIRED_REVISION:
        raise SchemaOutdated(
            f"the schema {db.schema!r} is at {revision or 'nothing'}, this code needs {REQUIRED_REVISION}",
            fix=MIGRATE,
        )
