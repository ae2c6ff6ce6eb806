"""Server-sent events: the bytes of a stream, and the answer that sends them for as long as somebody reads.

A stream says how soon to reconnect, is kept alive by comments, and ends with an event that says why: `end`, or
`draining`, after which its reader connects again with the last `id` it has. Called by the stream route.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, aclosing

from starlette.types import Receive, Scope, Send

from ..control.render import render
from ..sending import Sending

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
RETRY = b"retry: 2000\n\n"  # milliseconds
_HEADERS = {
    # A proxy that buffers would hold events back, and so would one that compresses.
    "X-Accel-Buffering": "no",
    "Cache-Control": "no-store, no-transform",
    # Who comes back after a drain has to find another process, which a connection that is kept would not.
    "Connection": "close",
}
_LINE_END = re.compile(rb"\r\n|\r|\n")


def encode(event: str, data: Mapping[str, object], *, number: int | None = None) -> bytes:
    """Give one event. Stored text may hold line breaks between its tokens; each line is one of the event's data."""
    lines = [] if number is None else [b"id: %d" % number]
    lines.append(b"event: " + event.encode())
    lines += [b"data: " + line for line in _LINE_END.split(render(data))]
    return b"\n".join(lines) + b"\n\n"


class EventStream(Sending):
    """An answer of server-sent events."""

    media_type = MEDIA_TYPE

    def __init__(self, opening: AbstractContextManager[AsyncGenerator[bytes, None]]) -> None:
        super().__init__((), headers=_HEADERS)
        self._opening = opening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open what is to be sent, and send it. What opening refuses is a problem like any other."""
        with self._opening as events:
            async with aclosing(events):
                self.body_iterator = events
                await super().__call__(scope, receive, send)
