"""A blade on the way to PostgreSQL: it counts the statements that go by and cuts the connection at one of them.

Speaks enough of the wire protocol to cut between any two messages: before a statement is sent, on its way into
execution, after its execution, in the middle of its reply. What it claims it has seen: a statement that was executed
has answered `ReadyForQuery`, one that was not has waited for a lock of ours when its backend was ended, or found it
gone.
Reached over a Unix socket in a folder of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg

from app.drivers.postgres.connect import dsn_of
from tests.support.processes import PATIENCE, eventually
from tests.support.wire import Wire, carry_back, hello, message_of

_SOCKET = ".s.PGSQL.5432"
_TABLE = re.compile(r'"outlast"\.([a-z_]+)')
# Wake-ups are hints, on a connection of their own: nothing hangs on them.
_NOT_COUNTED = (b"outlast notify", b"outlast listen")
# What asyncpg asks on a new connection before it can send a statement: nothing has happened by then.
_PREPARING = ("current_setting('jit')", "set_config('jit'", "typeinfo_tree")


class Cut(StrEnum):
    """Where a connection ends around one statement."""

    UNSENT = "never sent"
    UNDONE = "delivered, not executed"
    UNANSWERED = "executed, no reply"
    HALF = "half a reply"
    SILENT = "executed, replies lost, no end of the connection"

    @property
    def is_executed(self) -> bool:
        """Say whether the server has run the statement."""
        return self not in {Cut.UNSENT, Cut.UNDONE}


class Limit(StrEnum):
    """A time limit of the server's that passes at one statement: the session's setting of that name."""

    LOCK = "lock_timeout"
    STATEMENT = "statement_timeout"
    IDLE = "idle_in_transaction_session_timeout"


class Blade:
    """Passes everything on until armed; then counts statements and cuts at the one it was armed for, once."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.hit: str | None = None  # the text of the statement that was cut
        self.said = ""  # how the server is known to have run it, or not
        self.fault: Exception | None = None  # of the blade itself
        self._is_counting = False
        self._at: int | None = None
        self._marker: str | None = None
        self._cut: Cut | Limit | None = None

    def arm_for(self, marker: str, cut: Cut) -> None:
        """Cut at the next statement whose text contains `marker`."""
        self.arm(None, cut)
        self._marker = marker

    def arm(self, at: int | None = None, cut: Cut | Limit | None = None) -> None:
        """Count from zero, and cut at a statement; without one only count."""
        self.statements, self.hit, self.said, self._marker = [], None, "", None
        self._at, self._cut, self._is_counting = at, cut, True

    def heal(self) -> None:
        """Let everything through again; connections that were cut stay so."""
        self._is_counting, self._cut = False, None

    def meets(self, sql: str) -> Cut | Limit | None:
        """Count a statement; gives the cut if it is the one."""
        if not self._is_counting or any(mark in sql for mark in _PREPARING):
            return None
        here = len(self.statements)
        self.statements.append(sql)
        is_it = here == self._at if self._marker is None else self._marker in sql
        if self._cut is None or not is_it:
            return None
        self.hit, cut, self._cut = sql, self._cut, None
        return cut


class BladedProxy:
    """The way to one database, past a blade."""

    def __init__(self, url: str, folder: Path, blade: Blade, admin: asyncpg.Connection, locker: Any) -> None:
        self._target = url
        self._folder = folder
        self._blade = blade
        self._admin: Any = admin
        self._locker = locker
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Give the URL of the database, through the proxy."""
        parts = urlsplit(self._target)
        return f"{parts.scheme}://{parts.username}@{parts.path}?host={self._folder}&port=5432"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either end is gone."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            answers, upstream = await self._connect()
            ends.append(upstream)
            packet = await hello(reader, writer)
            upstream.write(packet)
            wire = Wire(writer, upstream, not any(name in packet for name in _NOT_COUNTED))
            await _first_of(self._there(reader, wire), carry_back(answers, wire))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception as error:  # noqa: BLE001 - the test's, which asks for it
            self._blade.fault = error
        finally:
            for end in ends:
                end.close()
            self._tasks.discard(task)

    async def close(self) -> None:
        """End every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._target)
        query = parse_qs(parts.query)
        if "host" in query:
            return await asyncio.open_unix_connection(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
        return await asyncio.open_connection(parts.hostname, parts.port or 5432)

    async def _there(self, reader: asyncio.StreamReader, wire: Wire) -> None:
        while True:
            message, sql = await message_of(reader, wire)
            cut = None if sql is None or not wire.is_counted else self._blade.meets(sql)
            if cut is not None:
                while message[-5:] != b"S\0\0\0\4" and message[:1] != b"Q":
                    message += (await message_of(reader, wire))[0]
                wire.may_end.clear()
                try:
                    await self._cut(cut, message, wire)
                finally:
                    wire.may_end.set()
                if cut not in {Cut.SILENT, Limit.LOCK, Limit.STATEMENT}:
                    return
            else:
                wire.to_server.write(message)

    async def _cut(self, cut: Cut | Limit, message: bytes, wire: Wire) -> None:
        """Do to one statement what was asked for; the connection ends with the return, but for one gone silent."""
        if cut is Cut.UNSENT:
            self._blade.said = "not sent"
        elif cut is Cut.UNDONE:
            wire.kept = b""
            await self._undo(message, wire)
            await _within(wire.is_ended)
            wire.to_client.write(wire.kept)  # why it was ended
        elif cut is Limit.IDLE:
            await _within(wire.is_ended)
            self._blade.said = "ended by the server"
        elif isinstance(cut, Limit):
            await self._hold_up(message, wire)
        else:
            wire.kept, wire.is_ready = b"", asyncio.Event()
            wire.to_server.write(message)
            await _within(wire.is_ready)
            self._blade.said = "ready for the next"
            if cut is Cut.HALF:
                wire.to_client.write(wire.kept[: len(wire.kept) // 2])
                await wire.to_client.drain()

    async def _undo(self, message: bytes, wire: Wire) -> None:
        """Deliver a statement and end its backend before it is executed."""
        transaction = self._locker.transaction()
        await transaction.start()
        try:
            tables = dict.fromkeys(_TABLE.findall(str(self._blade.hit)))
            if await self._locked(tables):
                wire.to_server.write(message)
                waits = "select exists(select from pg_locks where pid = $1 and not granted)"
                await eventually(lambda: self._admin.fetchval(waits, wire.pid), "the statement waits for the lock")
                self._blade.said = "ended while it waited for a table"
                await self._end(wire)
            else:
                # Nothing to lock: its own transaction has it, or it is about no table. It finds nobody.
                await self._end(wire)
                self._blade.said = "found its backend gone"
                wire.to_server.write(message)
        finally:
            await transaction.rollback()

    async def _hold_up(self, message: bytes, wire: Wire) -> None:
        """Deliver a statement while a table of its own is locked, and let go when the server has answered."""
        async with self._locker.transaction():
            is_locked = await self._locked(dict.fromkeys(_TABLE.findall(str(self._blade.hit))))
            wire.kept, wire.is_ready = b"", asyncio.Event()
            wire.to_server.write(message)
            await _within(wire.is_ready)
        refusal = re.search(rb"\0C([0-9A-Z]{5})\0M", wire.kept)
        self._blade.said = refusal[1].decode() if refusal and is_locked else "nothing to wait for"
        wire.to_client.write(wire.kept)
        wire.kept = None

    async def _locked(self, names: dict[str, None]) -> bool:
        for name in names:
            with suppress(asyncpg.LockNotAvailableError, asyncpg.WrongObjectTypeError, asyncpg.UndefinedTableError):
                async with self._locker.transaction():
                    await self._locker.execute(f"lock table outlast.{name} in access exclusive mode nowait")
                return True
        return False

    async def _end(self, wire: Wire) -> None:
        """End a backend and wait until it has: its connection closes then. The server would look ten times a second."""
        assert await self._admin.fetchval("select pg_terminate_backend($1)", wire.pid)
        await _within(wire.is_ended)


async def _within(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()


async def _first_of(*parts: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception) and not isinstance(end, ConnectionError | asyncio.IncompleteReadError):
            raise end


@asynccontextmanager
async def past_a_blade(url: str, folder: Path, blade: Blade) -> AsyncIterator[BladedProxy]:
    """Run a proxy with a blade in front of a database; its socket is in `folder`."""
    admin = await asyncpg.connect(dsn_of(url))
    locker = await asyncpg.connect(dsn_of(url))
    proxy = BladedProxy(url, folder, blade, admin, locker)
    server = await asyncio.start_unix_server(proxy.serve, folder / _SOCKET)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await admin.close()
        await locker.close()
