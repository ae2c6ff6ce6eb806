"""One asyncpg connection: how a URL is read, and the settings every session of ours starts with.

Owns time limits, startup parameters and what is done without behind a pooler. Pools are `database`'s; the heartbeat's
and the listener's connections are made here directly, because they stand outside the pool.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ...domain.errors import SettingsInvalid
from .pooler import Statements, is_pooled, learn_types, statements_of
from .rollback import OurConnection

COMMAND_TIMEOUT = timedelta(seconds=15)
CONNECT_TIMEOUT = timedelta(seconds=10)
LOCK_TIMEOUT = timedelta(seconds=5)
IDLE_IN_TRANSACTION_TIMEOUT = timedelta(seconds=10)
# Of a client that is frozen inside a statement, prepared and not yet run, no other limit ends the transaction and its
# locks: the server waits for the rest. Servers before 17 have none that does.
TRANSACTION_TIMEOUT = timedelta(seconds=60)
_FIRST_WITH_TRANSACTION_TIMEOUT = 17

# What a pooler says to a parameter of the startup packet that it does not know.
_REFUSED = "unsupported startup parameter"
# The URL's word on prepared statements, as SQLAlchemy calls it; unset: found out.
STATEMENT_CACHE = "prepared_statement_cache_size"
_KEPT_STATEMENTS = 100
# Names of the pool's own and of libpq that asyncpg would pass on to the server as settings.
_NOT_FOR_THE_SERVER = (STATEMENT_CACHE, "prepared_statement_name_func", "connect_timeout")


def dsn_of(url: str | URL) -> str:
    """Give the URL as libpq and asyncpg read it; SQLAlchemy's driver names and parameters are taken out."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingsInvalid(
            "the database URL cannot be read",
            fix="set OUTLAST_DATABASE_URL=postgresql://user:password@host:5432/database",
        ) from error
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        raise SettingsInvalid(
            f"the database URL starts with {parsed.drivername}://",
            fix="set OUTLAST_DATABASE_URL=postgresql://user:password@host:5432/database",
        )
    query = dict(parsed.query)
    if "ssl" in query:
        query.setdefault("sslmode", query.pop("ssl"))
    for name in _NOT_FOR_THE_SERVER:
        query.pop(name, None)
    return parsed.set(drivername="postgresql", query=query).render_as_string(hide_password=False)


def statement_cache_of(url: str | URL) -> int | None:
    """Give how many prepared statements the URL allows a connection, None when it does not say.

    Raises:
        SettingsInvalid: it says something that is no number.
    """
    said = make_url(url).query.get(STATEMENT_CACHE)
    if said is None:
        return None
    if not isinstance(said, str) or not said.isdecimal():
        raise SettingsInvalid(
            f"the database URL says {STATEMENT_CACHE}={said}",
            fix=f"write {STATEMENT_CACHE}=0 to do without prepared statements, or leave it out",
        )
    return int(said)


async def connect(
    url: str | URL,
    *,
    application_name: str,
    command_timeout: timedelta = COMMAND_TIMEOUT,
    lease: timedelta = IDLE_IN_TRANSACTION_TIMEOUT,
) -> Any:  # noqa: ANN401  asyncpg ships no types
    """Open one asyncpg connection with the session settings of every Outlast connection.

    A process that freezes within a transaction keeps its locks no longer than its `lease`, nor than ten seconds.
    Settings travel in the startup packet, so that none outlives a transaction behind a pooler; one that only newer
    servers have is `SET` where there is no pooler. A pooler
    that refuses them is asked again without: nothing that must be right depends on them. Behind a pooler that does
    not manage prepared statements the connection uses none; the URL's `prepared_statement_cache_size` overrules that.
    """
    kept = statement_cache_of(url)
    opening: dict[str, Any] = {
        "timeout": max(1.0, min(CONNECT_TIMEOUT, command_timeout).total_seconds()),
        # Later than the server's own, so that a slow statement is ended by the server and the connection lives on.
        "command_timeout": command_timeout.total_seconds() + 1,
        "statement_cache_size": _KEPT_STATEMENTS if kept is None else kept,
        "connection_class": OurConnection,
        "server_settings": {"application_name": application_name} | _session_settings(command_timeout, lease),
    }
    dsn = dsn_of(url)
    try:
        connection = await asyncpg.connect(dsn, **opening)
    except asyncpg.PostgresError as error:
        if _REFUSED not in str(error):
            raise
        opening["server_settings"] = {"application_name": application_name}
        connection = await asyncpg.connect(dsn, **opening)
    try:
        if not await is_pooled(connection):
            if (
                connection.get_server_version().major >= _FIRST_WITH_TRANSACTION_TIMEOUT
                and command_timeout <= COMMAND_TIMEOUT
            ):
                # Not in the startup packet, where an older server would refuse it.
                await connection.execute(f"set transaction_timeout = {_milliseconds(TRANSACTION_TIMEOUT)}")
            return connection
        if kept is None and await statements_of(connection) is not Statements.MANAGED:
            connection.terminate()
            connection = await asyncpg.connect(dsn, **opening | {"statement_cache_size": 0})
        await learn_types(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _session_settings(command_timeout: timedelta, lease: timedelta) -> dict[str, str]:
    idle = min(IDLE_IN_TRANSACTION_TIMEOUT, lease)
    milliseconds = {
        "statement_timeout": command_timeout,
        # Of a frozen process one transaction may wait for another. What waits gives up before the server ends what it
        # waits for: else it would have the lock then, and keep it for as long again.
        "lock_timeout": min(LOCK_TIMEOUT, command_timeout, idle / 2),
        "idle_in_transaction_session_timeout": idle,
    }
    return {
        "jit": "off",
        # A claim or settle that came back is on disk, whatever a role or database has for a default.
        "synchronous_commit": "on",
        # A plan made while the tables were small would keep its sequential scan for the connection's life.
        "enable_seqscan": "off",
        # A bitmap is read in the order of the table, an index in the order of ids: the lock order of `running`.
        "enable_bitmapscan": "off",
        # Beside a long queue a plan made anew for each batch looks cheaper; making it costs more than it saves.
        "plan_cache_mode": "force_generic_plan",
        **{name: str(_milliseconds(limit)) for name, limit in milliseconds.items()},
    }


def _milliseconds(limit: timedelta) -> int:
    return int(limit.total_seconds() * 1000)
