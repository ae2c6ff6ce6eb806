"""A proxy in front of PostgreSQL that understands just enough of its protocol to hold, cut and count single statements.

It follows which prepared statement carries which SQL, so that a rule can name statements by their text: a held call
stays in the proxy until it is released, a held reply was executed and the client does not know. It can make the way
long, narrow and unreliable, and keep notifications or everything to itself. Reached over a Unix socket in a folder of
its own.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.processes import PATIENCE
from tests.support.weather import Lane, Weather

_SOCKET = ".s.PGSQL.5432"
_ENCRYPT = {80877103, 80877104}  # SSLRequest, GSSENCRequest
_HEADER = struct.Struct("!ci")


@dataclass(eq=False)
class Held:
    """A rule on statements whose text contains `marker`, and what it has caught. `times`: how many it catches."""

    marker: str
    is_reply: bool
    times: int
    caught: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0
    _is_lost: bool = False

    async def until_caught(self) -> None:
        """Come back once a statement was caught."""
        async with asyncio.timeout(PATIENCE):
            await self.caught.wait()

    def release(self) -> None:
        """Let what was caught go on, and catch no more."""
        self.times = 0
        self._released.set()

    def lose(self) -> None:
        """Cut the connections of what was caught, and catch no more: calls never arrive, replies never come back."""
        self._is_lost = True
        self.release()

    def wants(self, sql: str, *, is_reply: bool) -> bool:
        """Say whether this rule catches a statement now."""
        return self.times > 0 and self.is_reply == is_reply and self.marker in sql

    async def catch(self) -> None:
        """Hold the caller until released."""
        self.times -= 1
        self.count += 1
        self.caught.set()
        await self._released.wait()
        if self._is_lost:
            raise ConnectionResetError


@dataclass(eq=False)
class Tally:
    """How many statements contain `marker`, since it was made."""

    marker: str
    count: int = 0


class Proxy:
    """Passes everything on until told otherwise."""

    def __init__(self, url: str, folder: Path) -> None:
        self._target = url
        self._folder = folder
        self._rules: list[Held] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tallies: list[Tally] = []
        self._is_cut = False
        self.weather: Weather | None = None
        self.is_black_hole = False  # connections stay, and nothing arrives
        self.drops_notifications = False

    @property
    def url(self) -> str:
        """Give the URL of the database behind the proxy, through it."""
        parts = urlsplit(self._target)
        return f"{parts.scheme}://{parts.username}@{parts.path}?host={self._folder}&port=5432"

    def hold(self, marker: str, *, times: int = 1) -> Held:
        """Hold calls of statements that contain `marker`: the server does not see them before they are released."""
        return self._add(Held(marker=marker, is_reply=False, times=times))

    def hold_reply(self, marker: str, *, times: int = 1) -> Held:
        """Hold replies to statements that contain `marker`: they were executed, and the client does not know."""
        return self._add(Held(marker=marker, is_reply=True, times=times))

    def count(self, marker: str) -> Tally:
        """Count statements that contain `marker` from now on."""
        tally = Tally(marker)
        self._tallies.append(tally)
        return tally

    def cut(self) -> None:
        """End every connection and let no new one through."""
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    def _add(self, rule: Held) -> Held:
        self._rules.append(rule)
        return rule

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_cut:
            writer.transport.abort()
            return
        self._tasks.add(task)
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await self._connect()
            self._writers.add(upstream)
            await self._carry(reader, writer, answers, upstream)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.close()
                    self._writers.discard(end)
            self._tasks.discard(task)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
    ) -> None:
        line = _Line()
        to_server, to_client = Lane(upstream), Lane(writer)
        tasks = [
            asyncio.create_task(part)
            for part in (
                self._there(reader, writer, to_server, line),
                self._back(answers, to_client, line),
                to_server.run(),
                to_client.run(),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._target)
        query = parse_qs(parts.query)
        if "host" in query:
            return await asyncio.open_unix_connection(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
        return await asyncio.open_connection(parts.hostname, parts.port or 5432)

    async def _there(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_server: Lane, line: _Line
    ) -> None:
        await self._start_up(reader, writer, to_server)
        while True:
            header = await reader.readexactly(_HEADER.size)
            kind, length = _HEADER.unpack(header)
            body = await reader.readexactly(length - 4)
            sql = line.sends(kind, body)
            if sql is not None:
                for tally in self._tallies:
                    tally.count += tally.marker in sql
                await self._obey(sql, is_reply=False)
                self._strike()
            if not self.is_black_hole:
                to_server.send(header + body, self.weather)

    async def _start_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_server: Lane) -> None:
        """Pass the first packet on, which has no kind; encryption is declined here."""
        while True:
            size = await reader.readexactly(4)
            body = await reader.readexactly(struct.unpack("!i", size)[0] - 4)
            if len(body) == 4 and struct.unpack("!i", body)[0] in _ENCRYPT:
                writer.write(b"N")
                continue
            to_server.send(size + body, self.weather)
            return

    async def _back(self, answers: asyncio.StreamReader, to_client: Lane, line: _Line) -> None:
        news = _News()
        while True:
            chunk = await answers.read(65536)
            if not chunk:
                return
            if line.running is not None:
                await self._obey(line.running, is_reply=True)
                self._strike()
            chunk = news.without(chunk) if self.drops_notifications else chunk
            if not self.is_black_hole:
                to_client.send(chunk, self.weather)

    def _strike(self) -> None:
        if self.weather is not None and self.weather.cuts_now():
            raise ConnectionResetError

    async def _obey(self, sql: str, *, is_reply: bool) -> None:
        for rule in self._rules:
            if rule.wants(sql, is_reply=is_reply):
                await rule.catch()

    async def close(self) -> None:
        """Cut every connection."""
        for rule in self._rules:
            rule.release()
        for task in list(self._tasks):
            task.cancel()
        for writer in list(self._writers):
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _News:
    """Takes notifications out of what a server says; to be asked from the beginning of a message on."""

    def __init__(self) -> None:
        self._rest = b""

    def without(self, chunk: bytes) -> bytes:
        """Give the whole messages so far that are none."""
        said, kept = self._rest + chunk, b""
        while len(said) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(said)
            if len(said) < length + 1:
                break
            kept += b"" if kind == b"A" else said[: length + 1]
            said = said[length + 1 :]
        self._rest = said
        return kept


class _Line:
    """What one connection is doing: the text of each prepared statement, and of the one that runs."""

    def __init__(self) -> None:
        self._texts: dict[bytes, str] = {}
        self.running: str | None = None

    def sends(self, kind: bytes, body: bytes) -> str | None:
        """Take a message of the client in; gives the text of the statement it executes, if it does."""
        if kind == b"P":
            name, _, rest = body.partition(b"\0")
            self._texts[name] = rest.partition(b"\0")[0].decode()
            self.running = None
        elif kind == b"B":
            name = body.partition(b"\0")[2].partition(b"\0")[0]
            self.running = self._texts.get(name, "")
            return self.running
        elif kind == b"Q":
            self.running = body.rstrip(b"\0").decode()
            return self.running
        return None


@asynccontextmanager
async def proxy_to(url: str, folder: Path) -> AsyncIterator[Proxy]:
    """Run a proxy to a database; its socket is in `folder`."""
    proxy = Proxy(url, folder)
    server = await asyncio.start_unix_server(proxy._serve, folder / _SOCKET)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await server.wait_closed()
