"""One connection of PostgreSQL's wire protocol, message by message, as a proxy between the two ends reads it."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field

_ENCRYPT = {80877103, 80877104}  # SSLRequest, GSSENCRequest
_HEADER = struct.Struct("!ci")


@dataclass(eq=False)
class Wire:
    """One connection: its ends, the texts of its prepared statements, and what is done with replies."""

    to_client: asyncio.StreamWriter
    to_server: asyncio.StreamWriter
    is_counted: bool
    pid: int = 0
    is_within: bool = False  # a statement has begun, and its Sync has not come
    texts: dict[bytes, str] = field(default_factory=dict)
    kept: bytes | None = None  # replies since they are kept back
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    is_ended: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)  # not while it is being cut

    def __post_init__(self) -> None:
        self.may_end.set()

    def reads(self, kind: bytes, body: bytes) -> str | None:
        """Take a message of the client in; gives the text of the statement it begins to execute."""
        if kind == b"P":
            name, _, rest = body.partition(b"\0")
            self.texts[name] = rest.partition(b"\0")[0].decode()
        elif kind == b"S":
            self.is_within = False
        elif kind == b"B" and not self.is_within:
            self.is_within = True
            return self.texts.get(body.partition(b"\0")[2].partition(b"\0")[0], "")
        elif kind == b"Q":
            return body.rstrip(b"\0").decode()
        return None


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read the first packet, which has no kind; encryption is declined here."""
    while True:
        size = await reader.readexactly(4)
        body = await reader.readexactly(struct.unpack("!i", size)[0] - 4)
        if len(body) == 4 and struct.unpack("!i", body)[0] in _ENCRYPT:
            writer.write(b"N")
            continue
        return size + body


async def message_of(reader: asyncio.StreamReader, wire: Wire) -> tuple[bytes, str | None]:
    """Read a message of the client; gives it, with the text of the statement it begins to execute, if it does."""
    header = await reader.readexactly(_HEADER.size)
    kind, length = _HEADER.unpack(header)
    body = await reader.readexactly(length - 4)
    return header + body, wire.reads(kind, body)


async def carry_back(answers: asyncio.StreamReader, wire: Wire) -> None:
    """Pass the server's messages on, or keep them back, until it ends; not before the cut is made, if one is."""
    try:
        while True:
            header = await answers.readexactly(_HEADER.size)
            kind, length = _HEADER.unpack(header)
            body = await answers.readexactly(length - 4)
            if kind == b"K":
                wire.pid = struct.unpack_from("!i", body)[0]
            if wire.kept is None:
                wire.to_client.write(header + body)
            else:
                wire.kept += header + body
            if kind == b"Z":
                wire.is_ready.set()
    finally:
        wire.is_ended.set()
        await wire.may_end.wait()
