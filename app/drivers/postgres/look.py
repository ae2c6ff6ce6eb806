"""Reads of many rows that somebody waits for: they end by a bound, and leave connections to those who write.

Whatever a filter finds, its caller has an answer within the bound: the server itself ends the statement, so that the
connection is fit for the next verb and nothing goes on that nobody reads. Such reads have a share of the connections
among themselves; enqueues, actions and what is asked of one job never wait behind them, where the pool has more than
one. Nobody's reads, those of workers and commands, pass by. Called by the driver around its verbs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from ...domain.errors import DriverUnavailable, QueryTooSlow
from ...domain.waited import is_waited_for
from .database import Database, Raw, Row
from .reader import Reader

T = TypeVar("T")

# After the server's own limit, of which it has told nobody by then: it is the way there that is broken.
LATE_SECONDS = 0.5
_CANCELLED = "57014"
# For the transaction alone, as a pooler wants it.
_BOUND = "select set_config('statement_timeout', $1, true)"
_NARROW = "narrow the filter, by time, queue or job type, or repeat the call in a moment"


async def look(db: Database, read: Callable[[Reader], Awaitable[T]], *, seconds: float | None = None) -> T:
    """Run what reads; for somebody who waits, on a database whose statements end by the bound, once it has its turn.

    `seconds`: another bound than that of all.

    Raises:
        QueryTooSlow: the time is over. Nothing is under way any more.
        DriverUnavailable: there was no connection, or the server did not even say that the time is over.
    """
    if not is_waited_for():
        return await read(db)
    seconds = db.look_seconds if seconds is None else seconds
    until = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(until):
            await db.look_slots.acquire()
    except TimeoutError as late:
        raise QueryTooSlow(f"other reads were before it for {seconds:g} s", fix=_NARROW) from late
    try:
        async with asyncio.timeout_at(until + LATE_SECONDS):
            return await read(_Bounded(db, until, seconds))
    except TimeoutError as late:
        raise DriverUnavailable(
            f"PostgreSQL gave no connection or no answer within {seconds + LATE_SECONDS:g} s",
            fix="check that PostgreSQL answers and has connections to spare, then repeat the call",
        ) from late
    finally:
        db.look_slots.release()


class _Bounded:
    """A database as one read sees it: each verb in a transaction of its own, whose statements end by a time."""

    def __init__(self, of: Database, until: float, seconds: float) -> None:
        self._of = of
        self._until = until
        self._seconds = seconds

    @property
    def api_role(self) -> str | None:
        """Give the role behind the wall between tenants."""
        return self._of.api_role

    def in_schema(self, sql: str) -> str:
        """Give SQL written with `outlast.` for the schema at hand."""
        return self._of.in_schema(sql)

    async def run(self, verb: Callable[[Raw], Awaitable[T]]) -> T:
        """Run a verb that reads."""

        async def once(conn: Raw) -> T:
            async with conn.transaction():
                return await verb(_Timed(conn, self._until, self._seconds))

        try:
            return await self._of.run(once)
        except DriverUnavailable as error:
            if error.details.get("sqlstate") != _CANCELLED:
                raise
            raise _too_slow(self._seconds) from error


class _Timed:
    """A connection in a transaction: the server is told before each statement how long that may take."""

    def __init__(self, conn: Raw, until: float, seconds: float) -> None:
        self._conn = conn
        self._until = until
        self._seconds = seconds

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Run a statement and give its rows."""
        await self._bound()
        return await self._conn.fetch(query, *args)

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        """Run a statement and give its first row."""
        await self._bound()
        return await self._conn.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: object) -> Any:  # noqa: ANN401  any column
        """Run a statement and give the first column of its first row."""
        await self._bound()
        return await self._conn.fetchval(query, *args)

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement and give its command tag."""
        await self._bound()
        return await self._conn.execute(query, *args)

    def transaction(self, *, isolation: str | None = None) -> AbstractAsyncContextManager[object]:
        """Stay in the transaction at hand."""
        if isolation is not None:
            raise ValueError(f"a read that is bounded sees what is committed, not {isolation}")
        return nullcontext()

    async def _bound(self) -> None:
        left = self._until - asyncio.get_running_loop().time()
        if left <= 0:
            raise _too_slow(self._seconds)
        await self._conn.fetchval(_BOUND, str(math.ceil(left * 1_000)))


def _too_slow(seconds: float) -> QueryTooSlow:
    return QueryTooSlow(f"it was not read within {seconds:g} s, and was ended", fix=_NARROW)
