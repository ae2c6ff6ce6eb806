"""A reader of server-sent events: what a browser's EventSource would hand out, and the comments."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One event, or a comment, whose name is empty."""

    event: str
    data: Any = None
    id: str | None = None


class Reader:
    """The events of one open stream, in order."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.retry: int | None = None

    async def next(self) -> Sent | None:
        """Give the next event or comment; None at the end of the stream."""
        fields: dict[str, str] = {}
        data: list[str] = []
        async for line in self._lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line == "":
                if data:
                    return Sent(event=fields["event"], data=json.loads("\n".join(data)), id=fields.get("id"))
                fields.clear()
            elif name == "":
                return Sent(event="", data=value)
            elif name == "data":
                data.append(value)
            elif name == "retry":
                self.retry = int(value)
            else:
                fields[name] = value
        return None

    async def until(self, *names: str) -> list[Sent]:
        """Give all events up to one of these, which is the last; the stream's end is a failure of the test."""
        found: list[Sent] = []
        while not found or found[-1].event not in names:
            sent = await self.next()
            assert sent is not None, f"the stream ended after {[one.event for one in found]}"
            found.append(sent)
        return found

    async def rest(self) -> list[Sent]:
        """Give all events to the end of the stream."""
        found = []
        while (sent := await self.next()) is not None:
            found.append(sent)
        return found


@asynccontextmanager
async def stream_of(client: httpx.AsyncClient, path: str, *, last_id: str | None = None) -> AsyncIterator[Reader]:
    """Open a stream and give its reader."""
    headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
    async with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield Reader(response)
