"""What a failing database call means: every asyncpg, SQLAlchemy and socket error as an `OutlastError`.

Owns the table from SQLSTATE to error. Messages carry no row contents: PostgreSQL quotes values in its details. Called
by `database` around every statement and by the connections that stand outside the pool.
"""

from __future__ import annotations

from asyncpg import exceptions as pg
from sqlalchemy import exc as sa
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi

from ...domain.errors import (
    DriverUnavailable,
    Internal,
    OutlastError,
    RequestInvalid,
    SchemaOutdated,
    SettingsInvalid,
    StoreBusy,
)

CHECK_DATABASE = "check that PostgreSQL runs and that OUTLAST_DATABASE_URL points at it, then repeat the call"
MIGRATE = "run `outlast migrate up`"
UNPREPARED = "repeat the call; if it comes again, add prepared_statement_cache_size=0 to OUTLAST_DATABASE_URL's query"


class Contended(StoreBusy):
    """Two statements stood in each other's way and this one was rolled back whole; repeating it is safe."""


class Taken(Internal):
    """A row with this identity is there already."""


# The first entry that fits decides: whole codes before classes.
_BY_STATE: tuple[tuple[str, type[OutlastError], str], ...] = (
    ("40001", Contended, "repeat the call"),
    ("40P01", Contended, "repeat the call"),
    ("40003", DriverUnavailable, "repeat the call with the same id"),
    ("25006", DriverUnavailable, "point OUTLAST_DATABASE_URL at the primary; this server only reads"),
    ("25P03", DriverUnavailable, "repeat the call"),
    ("25P04", DriverUnavailable, "repeat the call"),
    ("26000", DriverUnavailable, UNPREPARED),
    ("42P05", DriverUnavailable, UNPREPARED),
    ("0A000", DriverUnavailable, "repeat the call"),
    ("55P03", StoreBusy, "repeat the call; another session holds a lock"),
    ("55000", DriverUnavailable, CHECK_DATABASE),
    ("3D000", DriverUnavailable, "create the database, or correct its name in OUTLAST_DATABASE_URL"),
    ("3F000", SchemaOutdated, MIGRATE),
    ("42P01", SchemaOutdated, MIGRATE),
    ("42703", SchemaOutdated, MIGRATE),
    ("42883", SchemaOutdated, MIGRATE),
    ("42501", SettingsInvalid, "grant the role of OUTLAST_DATABASE_URL what it needs in the schema of OUTLAST_SCHEMA"),
    ("23505", Taken, "report this with the log line"),
    ("08", DriverUnavailable, CHECK_DATABASE),
    ("28", DriverUnavailable, "correct user and password in OUTLAST_DATABASE_URL"),
    (
        "53",
        DriverUnavailable,
        "give PostgreSQL what it lacks (connections, memory, disk), then repeat the call",
    ),
    ("57014", DriverUnavailable, "repeat the call; if it comes again, look in pg_stat_activity for what it waits for"),
    ("57", DriverUnavailable, CHECK_DATABASE),
    ("58", DriverUnavailable, CHECK_DATABASE),
    ("22", RequestInvalid, "send a value within the documented limits"),
    ("23", RequestInvalid, "send a value within the documented limits"),
    ("54", RequestInvalid, "send a value within the documented limits"),
)


def translate(error: BaseException) -> OutlastError | None:
    """Give the Outlast error for a failed database call, or None when `error` is not one."""
    if isinstance(error, sa.DBAPIError):
        inner = error.orig.__cause__ if error.orig is not None and error.orig.__cause__ is not None else error.orig
        return DriverUnavailable(_said(error), fix=CHECK_DATABASE) if inner is None else translate(inner)
    if isinstance(error, AsyncAdapt_asyncpg_dbapi.Error):
        # What a connection attempt of the pool ends with: the dialect's own family, of neither SQLAlchemy's nor
        # asyncpg's errors.
        known = None if error.__cause__ is None else translate(error.__cause__)
        return known or DriverUnavailable(f"PostgreSQL cannot be reached: {_said(error)}", fix=CHECK_DATABASE)
    if isinstance(error, pg.PostgresError):
        return _from_server(error)
    if isinstance(error, pg.DataError):
        return RequestInvalid("a value cannot be sent to PostgreSQL", fix="send a value within the documented limits")
    if isinstance(error, pg.ClientConfigurationError):
        return SettingsInvalid(f"the database URL cannot be used: {_said(error)}", fix="correct OUTLAST_DATABASE_URL")
    if isinstance(error, (TimeoutError, sa.TimeoutError)):
        return DriverUnavailable("PostgreSQL did not answer in time", fix=CHECK_DATABASE)
    # A killed backend may show as InternalClientError, which is neither of asyncpg's two families.
    if isinstance(error, (pg.InterfaceError, pg.InternalClientError, OSError, sa.SQLAlchemyError)):
        return DriverUnavailable(f"PostgreSQL cannot be reached: {_said(error)}", fix=CHECK_DATABASE)
    return None


def _from_server(error: pg.PostgresError) -> OutlastError:
    state = str(error.sqlstate or "")
    for prefix, kind, fix in _BY_STATE:
        if state.startswith(prefix):
            # A refused value would be quoted in the message.
            said = "" if kind is RequestInvalid else f": {_said(error)}"
            return kind(f"PostgreSQL answered {state}{said}", fix=fix, sqlstate=state)
    return Internal(f"PostgreSQL answered {state}: {_said(error)}", fix="report this with the log line", sqlstate=state)


def _said(error: BaseException) -> str:
    """Give the first line of what the error says, without the details PostgreSQL adds."""
    words: object = error.args[0] if error.args else ""
    if isinstance(error, OSError):
        words = error.strerror or error
    first = str(words).partition("\n")[0][:300]
    return first or type(error).__name__
