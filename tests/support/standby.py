"""A standby that says which rows it reads, and its replication slot, which keeps them also when it has gone for good.

Speaks the little of the replication protocol that it takes, over the socket of a server that trusts its callers.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import asyncpg

from app.drivers.postgres.connect import dsn_of
from tests.support.processes import eventually

_PROTOCOL = 3 << 16
_HEADER = struct.Struct("!ci")
NAME = "a standby"


@asynccontextmanager
async def slot(url: str, name: str) -> AsyncIterator[None]:
    """Have a slot whose standby reads what is there now, and has gone; slots are the whole server's."""
    async with _made(url, name) as connection:
        async with _standby(connection, url, name):
            pass
        yield


@asynccontextmanager
async def slot_that_is_read(url: str, name: str) -> AsyncIterator[None]:
    """Have one whose standby is there."""
    async with _made(url, name) as connection, _standby(connection, url, name):
        yield


@asynccontextmanager
async def _made(url: str, name: str) -> AsyncIterator[asyncpg.Connection]:
    """Give a connection, and let go of the slot whatever happens: it would hold the rows of every other test."""
    connection = await asyncpg.connect(dsn_of(url))
    try:
        yield connection
    finally:
        await connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1", name
        )
        await connection.close()


@asynccontextmanager
async def _standby(connection: asyncpg.Connection, url: str, name: str) -> AsyncIterator[None]:
    """Make a slot and read from it, from where it begins, needing every row that is there now."""
    position = await connection.fetchval("select lsn::text from pg_create_physical_replication_slot($1, true)", name)
    oldest = int(await connection.fetchval("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint"))
    looked = "select xmin is not null, active from pg_replication_slots where slot_name = $1"

    async def has_heard() -> bool:
        return bool((await connection.fetchrow(looked, name))[0])

    async def is_alone() -> bool:
        return not (await connection.fetchrow(looked, name))[1]

    _reader, writer = await _read_from(url, name, position, oldest)
    try:
        await eventually(has_heard, "the server has heard what the standby reads")
        yield
    finally:
        writer.close()
    await eventually(is_alone, "the server has noticed that the standby has gone")


async def _read_from(
    url: str, name: str, position: str, oldest: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    where = {key: values[0] for key, values in parse_qs(parts.query).items()}
    reader, writer = await asyncio.open_unix_connection(f"{where['host']}/.s.PGSQL.{where['port']}")
    said = f"user\0{parts.username}\0replication\0true\0application_name\0{NAME}\0\0".encode()
    writer.write(struct.pack("!ii", len(said) + 8, _PROTOCOL) + said)
    await _until(reader, b"Z")
    asked = f'START_REPLICATION SLOT "{name}" PHYSICAL {position}\0'.encode()
    writer.write(_HEADER.pack(b"Q", len(asked) + 4) + asked)
    await _until(reader, b"W")
    epoch, xmin = divmod(oldest, 2**32)
    feedback = struct.pack("!cqIIII", b"h", 0, xmin, epoch, 0, 0)
    writer.write(_HEADER.pack(b"d", len(feedback) + 4) + feedback)
    return reader, writer


async def _until(reader: asyncio.StreamReader, wanted: bytes) -> None:
    """Read messages up to one of a kind."""
    while True:
        kind, length = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        body = await reader.readexactly(length - 4)
        assert kind != b"E", body
        if kind == wanted:
            return
