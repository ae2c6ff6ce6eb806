"""The way to the database: the engine, and the asyncpg connection beneath a checked-out one.

Owns pool settings, the schema's name in SQL, and what happens to a connection that broke or was cut in
mid-statement. Holds no queries. Verbs run on `raw()`, where every statement commits by itself (AUTOCOMMIT).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import timedelta
from secrets import SystemRandom
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import asyncpg
from sqlalchemy import Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ...domain.errors import DriverUnavailable, OutlastError, SettingsInvalid
from ...domain.waited import LOOK_SECONDS
from ..capabilities import PoolUse
from .called import Called
from .connect import (
    COMMAND_TIMEOUT,
    CONNECT_TIMEOUT,
    IDLE_IN_TRANSACTION_TIMEOUT,
    STATEMENT_CACHE,
    connect,
    dsn_of,
    statement_cache_of,
)
from .due_mark import DueMark
from .hand import Hand, Taken
from .limited import Limited
from .low_look import LowLook
from .low_water import LowWater
from .pooler import learn_types_if_pooled
from .ringer import Ringer
from .sqlstate import Contended, translate
from .tables import DEFAULT_SCHEMA

T = TypeVar("T")
Row: TypeAlias = Mapping[str, Any]

# Up to 48 characters, so that the names of channels fit an identifier.
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_CLOSED = "outlast_closed"
_CONTENDED_TRIES = 4
# Lists are put together of what is asked for: of all that could be, more than anybody should keep.
_KEPT_TEXTS = 1_000
# Connection trouble, read-only or ended transactions, shutdown and recovery, system and internal errors.
_SERVER_TROUBLE = ("08", "25", "57P", "58", "XX")


class Raw(Protocol):
    """The part of an asyncpg connection that verbs use. Binds are `$1 …`; each statement commits by itself."""

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Run a statement and give its rows."""
        ...

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        """Run a statement and give its first row."""
        ...

    async def fetchval(self, query: str, *args: object) -> Any:  # noqa: ANN401  any column
        """Run a statement and give the first column of its first row."""
        ...

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement and give its command tag."""
        ...

    def transaction(self, *, isolation: str | None = None) -> AbstractAsyncContextManager[object]:
        """Open a transaction; leaving by an exception rolls back. `isolation` in asyncpg's words, else the default."""
        ...


def create_engine(
    url: str | URL,
    *,
    pool_size: int = 5,
    application_name: str = "outlast",
    command_timeout: timedelta = COMMAND_TIMEOUT,
    lease: timedelta = IDLE_IN_TRANSACTION_TIMEOUT,
) -> AsyncEngine:
    """Make the one engine of a process; nothing is connected yet. `pool_size` is a bound, `lease` as in `connect`."""
    target = make_url(dsn_of(url)).set(drivername="postgresql+asyncpg")
    kept = statement_cache_of(url)
    if kept is not None:
        target = target.update_query_dict({STATEMENT_CACHE: str(kept)})

    async def connected() -> Any:  # noqa: ANN401  asyncpg ships no types
        return await connect(target, application_name=application_name, command_timeout=command_timeout, lease=lease)

    def created() -> Any:  # noqa: ANN401  what SQLAlchemy's dialect makes of it
        # SQLAlchemy keeps no statements of its own: behind some poolers none has a name that could be kept.
        dbapi: Any = engine.dialect.dbapi
        return dbapi.connect(async_creator_fn=connected, prepared_statement_cache_size=0)

    engine = create_async_engine(
        target,
        creator=created,
        isolation_level="AUTOCOMMIT",
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT.total_seconds(),
        pool_use_lifo=True,  # the connection used last knows the statements that run now; the others may rest
        pool_pre_ping=False,  # a round trip per checkout; `raw` drops connections that asyncpg knows to be closed
    )
    event.listen(engine.sync_engine, "connect", _learn_again)
    event.listen(engine.sync_engine, "engine_disposed", _mark_closed)
    return engine


def _learn_again(connection: Any, _: object) -> None:  # noqa: ANN401  an adapted connection
    # SQLAlchemy has given the new connection its codecs, at which asyncpg forgets what it has learnt.
    connection.run_async(learn_types_if_pooled)


def _mark_closed(engine: Engine) -> None:
    # A disposed engine quietly makes a new pool, which nobody would ever close.
    engine.update_execution_options(**{_CLOSED: True})


class Database:
    """An engine and a schema: gives connections and puts the schema's name into SQL.

    `is_alone`: nobody else uses the engine; connections are kept at hand instead of given back to its pool each time.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        schema: str = DEFAULT_SCHEMA,
        *,
        roll: Callable[[], float] | None = None,
        is_alone: bool = False,
    ) -> None:
        self.engine = _accepted(engine)
        self._hand = Hand(self.engine, keeps=is_alone)
        self.schema = checked_schema(schema)
        self._roll = SystemRandom().random if roll is None else roll
        self._sql: dict[str, str] = {}
        self._is_closed = False
        # False where the session settings that choose our plans are not in force; known once the driver has opened.
        self.plans_are_ours = True
        # Who reads for callers of one tenant; None where that role may not be taken. Known once the driver has opened.
        self.api_role: str | None = None
        self.ringer = Ringer(self.url, self.schema, roll=self._roll)
        self.step_sessions = asyncio.Semaphore(_sessions_of(self.engine))
        # Reads of many rows that somebody waits for, of which half the connections are at most: see `look`.
        self.look_slots = asyncio.Semaphore(_looks_of(self.engine))
        self.look_seconds = LOOK_SECONDS
        self.name_ids: dict[str, int] = {}
        # The code of workers, which never changes, and the names they claim, by how many names were known then.
        self.versions: dict[int, str] = {}
        self.claimed_names: dict[tuple[frozenset[str], str], tuple[int, frozenset[str]]] = {}
        self.limited = Limited()
        self.turns_after: dict[str, str] = {}  # of queues with many tenants: behind whom the next look goes on
        self.low_water = LowWater(monotonic=time.monotonic, roll=self._roll)
        self.low_look = LowLook(self)
        self.due_mark = DueMark(monotonic=time.monotonic, roll=self._roll)
        self.wake_mark = DueMark(monotonic=time.monotonic, roll=self._roll)
        self.called = Called(monotonic=time.monotonic)

    @property
    def url(self) -> URL:
        """Give the database's URL, for the connections that stand outside the pool."""
        return self.engine.url

    @property
    def pool(self) -> PoolUse | None:
        """Give how the connections for verbs are used."""
        return self._hand.use

    def in_schema(self, sql: str) -> str:
        """Give SQL written with `outlast.` for the schema at hand."""
        known = self._sql.get(sql)
        if known is None:
            if len(self._sql) >= _KEPT_TEXTS:
                self._sql.clear()
            known = self._sql[sql] = in_schema(sql, self.schema)
        return known

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        """Give the asyncpg connection beneath one of the engine's.

        A connection that broke, was left in a transaction, or whose statement was cut off by a cancelled task is
        thrown away: what the server still does on it is unknown. Database errors leave as `OutlastError`s.
        """
        try:
            taken = await self._take()
        except Exception as error:
            raise _translated(error) from error
        driver: Any = taken.driver
        is_fit = False
        try:
            yield cast("Raw", driver)
            is_fit = not driver.is_closed() and not driver.is_in_transaction()
        except Exception as error:
            if isinstance(error, TimeoutError):
                self._hand.throw_away_kept()  # later than the server's own limit: it is the way there that is broken
            known = translate(error)
            # Refusals that a verb raised itself leave the connection as good as it was.
            is_fit = not driver.is_closed() and not driver.is_in_transaction() and _leaves_usable(error, known)
            if known is None:
                raise
            raise known from error
        finally:
            if is_fit:
                self._hand.give(taken)
            else:
                self._hand.throw_away(taken)

    def lending(self) -> AbstractContextManager[None]:
        """Leave the engine's pool a connection for a session: the others may all be at hand, and idle."""
        return self._hand.lending()

    async def run(self, verb: Callable[[Raw], Awaitable[T]]) -> T:
        """Run a verb on a connection; up to three times more, jittered, after a deadlock or serialization failure."""
        for attempt in range(1, _CONTENDED_TRIES):
            try:
                async with self.raw() as conn:
                    return await verb(conn)
            except Contended:
                await asyncio.sleep(0.02 * 2**attempt * self._roll())
        async with self.raw() as conn:
            return await verb(conn)

    async def close(self) -> None:
        """Refuse every call from now on, and send the wake-ups under way.

        The engine is its owner's to dispose of: others may use it too.
        """
        self._is_closed = True
        self._hand.close()
        await self.low_look.close()
        await self.ringer.close()

    async def _take(self) -> Taken:
        if self._is_closed:
            raise DriverUnavailable("this driver is closed", fix="make a new engine and a new driver", is_closed=True)
        return await self._hand.take()


def _sessions_of(engine: AsyncEngine) -> int:
    """Give how many connections bodies may have at once: two stay for verbs, where the pool has as many."""
    size = getattr(engine.pool, "size", None)
    return max(1, size() - 2) if callable(size) else 2**31


def _looks_of(engine: AsyncEngine) -> int:
    """Give how many reads of many rows may be under way at once for those who wait."""
    size = getattr(engine.pool, "size", None)
    return max(1, size() // 2) if callable(size) else 2**31


def in_schema(sql: str, schema: str) -> str:
    """Swap the literal schema `outlast.` of our SQL for another one."""
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def checked_schema(schema: str) -> str:
    """Give the schema's name back, or refuse one that cannot stand in SQL as it is."""
    if not _SCHEMA_NAME.fullmatch(schema):
        raise SettingsInvalid(
            f"{schema!r} cannot be the name of the schema",
            fix="set OUTLAST_SCHEMA to 1 to 48 lower-case letters, digits and underscores, not starting with a digit",
        )
    return schema


def _accepted(engine: object) -> AsyncEngine:
    fix = "pass an AsyncEngine: create_async_engine('postgresql+asyncpg://…')"
    if isinstance(engine, Engine):
        raise SettingsInvalid("the engine is a synchronous one", fix=fix)
    if not isinstance(engine, AsyncEngine):
        raise SettingsInvalid(f"a {type(engine).__name__} is not an engine", fix=fix)
    if engine.dialect.driver != "asyncpg":
        raise SettingsInvalid(f"the engine's driver is {engine.dialect.driver}, not asyncpg", fix=fix)
    if engine.sync_engine.get_execution_options().get(_CLOSED):
        raise SettingsInvalid("the engine has been disposed of", fix="make a new engine; this one is closed")
    return engine


def _translated(error: Exception) -> Exception:
    return error if isinstance(error, OutlastError) else translate(error) or error


def _leaves_usable(error: Exception, known: OutlastError | None) -> bool:
    """Say whether the connection is in step with a server that can still be used.

    One that only reads or is going down may have been replaced by another under the same name.
    """
    if isinstance(error, asyncpg.PostgresError):
        return not str(error.sqlstate).startswith(_SERVER_TROUBLE)
    return known is None or isinstance(error, asyncpg.DataError)


__all__ = ["Database", "Raw", "Row", "checked_schema", "connect", "create_engine", "in_schema"]
