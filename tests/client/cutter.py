"""A way to the service that cuts: it passes bytes on, and ends connections when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_CHUNK = 65_536


class Cutter:
    """Passes connections on to the service. `replies_lost` counts the answers that were cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lose = 0
        self.replies_lost = 0
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lose_replies(self, count: int) -> None:
        """Let so many requests be done and their answers never arrive."""
        self._lose = count

    def cut(self) -> None:
        """End every connection that stands."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        answers, there = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as group:
                ways = [group.create_task(self._back(answers, writer)), group.create_task(_pass(reader, there))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        except* (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, there):
                end.close()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            if self._lose:
                self._lose -= 1
                self.replies_lost += 1
                writer.transport.abort()
                return
            writer.write(chunk)
            await writer.drain()

    async def close(self) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()


@asynccontextmanager
async def cutter_to(port: int) -> AsyncIterator[Cutter]:
    """Run a cutter in front of a port of this machine."""
    cutter = Cutter(port)
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    cutter.port = server.sockets[0].getsockname()[1]
    try:
        yield cutter
    finally:
        server.close()
        await cutter.close()
