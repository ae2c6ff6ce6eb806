"""A receiver of webhooks: a real HTTP server on loopback that answers what a test says and keeps what it was sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

# Answers a request on its own; what it writes is the whole answer.
Answerer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """What came, and what is answered: the next of `script`, else 204."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    script: list[int | bytes | Answerer] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def until(self, count: int) -> list[Received]:
        """Wait until so many requests came."""
        async with asyncio.timeout(30):
            while len(self.received) < count:
                self.came.clear()
                await self.came.wait()
        return self.received

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the receiver closes
        finally:
            self.serving.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.received.append(Received(method, target, headers, body))
            self.came.set()
            await self._answer(writer)
            writer.close()
            await writer.wait_closed()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        answer = self.script.pop(0) if self.script else 204
        if isinstance(answer, int):
            answer = f"HTTP/1.1 {answer} Said\r\ncontent-length: 0\r\n\r\n".encode()
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return
        await answer(writer)


@asynccontextmanager
async def receiving(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Run a receiver, over TLS where a context is given."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        serving = tuple(receiver.serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving)
