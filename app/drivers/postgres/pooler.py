"""Is there a pooler between us and the server, and what does it keep from us? Asked of a connection, by the wire alone.

A pooler hands out key data of its own, so the backend that answers is not the one that greeted us. One that manages
prepared statements gives them names of its own; one that does not would let two clients' statements of one name run
each other's SQL. Owns these questions and no policy: `connect` and `examine` decide what follows.
"""

from __future__ import annotations

from enum import StrEnum
from secrets import token_hex
from typing import Any

from ...domain.pooled import Pooled

# What chooses the plans of statements, and with them the order in which they lock rows.
PLANNING = frozenset({"enable_bitmapscan", "enable_seqscan"})
_OFF = PLANNING | {"jit"}
# Any limit will do; 0 is none.
_LIMITS = frozenset({"idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"})

# Of these, asyncpg knows the elements and asks about the rest.
_ARRAYS = ("boolean", "smallint", "integer", "bigint", "float8", "text", "uuid", "interval", "timestamptz")
_USES_ARRAYS = f"select {', '.join(f'null::{name}[]' for name in _ARRAYS)}"

# Of a statement without a name there is nothing that another client could find at the server.
_UNNAMED = ""


class Statements(StrEnum):
    """How the statements of a connection are called at the server."""

    UNNAMED = "unnamed"
    OURS = "ours"
    MANAGED = "managed"


async def is_pooled(connection: Any) -> bool:  # noqa: ANN401  asyncpg ships no types
    """Say whether something else than a PostgreSQL backend answered the connection."""
    (row,) = await _ask(connection, "select pg_backend_pid() as pid")
    return bool(row["pid"] != connection.get_server_pid())


async def statements_of(connection: Any) -> Statements:  # noqa: ANN401  asyncpg ships no types
    """Say how the connection's own statements are called at the server; leaves none of them there.

    In a transaction, so that a pooler keeps to one server meanwhile.
    """
    mark = token_hex(16)
    async with connection.transaction():
        names = await connection.fetchval(
            f"select array_agg(name) from pg_prepared_statements where statement like '%{mark}%'"  # noqa: S608  hex
        )
        ours = [name for name in names or () if name.startswith("__asyncpg_")]
        for name in ours:
            await connection.execute(f'deallocate "{name}"')
    if not names:
        return Statements.UNNAMED
    return Statements.OURS if ours else Statements.MANAGED


async def pooled_by(connection: Any, missing: tuple[str, ...]) -> Pooled:  # noqa: ANN401  asyncpg ships no types
    """Give what a pooler in the way leaves us with."""
    return Pooled(keeps_statements=await statements_of(connection) is not Statements.UNNAMED, missing=missing)


async def learn_types(connection: Any) -> None:  # noqa: ANN401  asyncpg ships no types
    """Let asyncpg ask now, once, about the types we use.

    When it asks, it switches `jit` off for the session and on again, each at whatever server it is given. Rolled back,
    that leaves nothing.
    """
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.prepare(_USES_ARRAYS, name=_UNNAMED)
    finally:
        await transaction.rollback()


async def learn_types_if_pooled(connection: Any) -> None:  # noqa: ANN401  asyncpg ships no types
    """Do the same where it matters."""
    if await is_pooled(connection):
        await learn_types(connection)


async def missing_settings(connection: Any) -> tuple[str, ...]:  # noqa: ANN401  asyncpg ships no types
    """Name the session settings of ours that are not in force at the server that answers."""
    found = await _ask(
        connection,
        "select name, setting from pg_settings where name = any($1::text[]) order by name",
        [*_OFF, *_LIMITS],
    )
    return tuple(row["name"] for row in found if row["setting"] == ("on" if row["name"] in _OFF else "0"))


async def _ask(connection: Any, sql: str, *args: object) -> list[Any]:  # noqa: ANN401  asyncpg ships no types
    """Run a query without a name; in a transaction, as asyncpg parses in one step and runs in another."""
    async with connection.transaction():
        asked = await connection.prepare(sql, name=_UNNAMED)
        rows: list[Any] = await asked.fetch(*args)
    return rows
