"""A standby that has gone for good: its replication slot still keeps the oldest rows that it said it reads.

Speaks the little of the replication protocol that it takes, over the socket of a server that trusts its callers.
"""

from __future__ import annotations

import asyncio
import struct
from urllib.parse import parse_qs, urlsplit

import asyncpg

from app.drivers.postgres.connect import dsn_of

_PROTOCOL = 3 << 16
_HEADER = struct.Struct("!ci")


async def leave_slot_behind(url: str, name: str) -> int:
    """Make a slot whose standby reads what is there now, and has gone; gives the oldest transaction it keeps."""
    connection = await asyncpg.connect(dsn_of(url))
    try:
        position = await connection.fetchval(
            "select lsn::text from pg_create_physical_replication_slot($1, true)", name
        )
        oldest = await connection.fetchval("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        await _read_from(url, name, position, int(oldest))
        kept = await connection.fetchval(
            "select xmin::text::bigint from pg_replication_slots where slot_name = $1", name
        )
    finally:
        await connection.close()
    assert kept == oldest % 2**32, "the server has heard of it"
    return int(oldest)


async def drop_slot(url: str, name: str) -> None:
    """Drop a slot if it is there."""
    connection = await asyncpg.connect(dsn_of(url))
    try:
        await connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1", name
        )
    finally:
        await connection.close()


async def _read_from(url: str, name: str, position: str, oldest: int) -> None:
    parts = urlsplit(url)
    where = {key: values[0] for key, values in parse_qs(parts.query).items()}
    reader, writer = await asyncio.open_unix_connection(f"{where['host']}/.s.PGSQL.{where['port']}")
    try:
        said = f"user\0{parts.username}\0replication\0true\0\0".encode()
        writer.write(struct.pack("!ii", len(said) + 8, _PROTOCOL) + said)
        await _until(reader, b"Z")
        asked = f'START_REPLICATION SLOT "{name}" PHYSICAL {position}\0'.encode()
        writer.write(_HEADER.pack(b"Q", len(asked) + 4) + asked)
        await _until(reader, b"W")
        epoch, xmin = divmod(oldest, 2**32)
        heard = struct.pack("!cqIIII", b"h", 0, xmin, epoch, 0, 0)
        writer.write(_HEADER.pack(b"d", len(heard) + 4) + heard)
        writer.write(_HEADER.pack(b"c", 4) + _HEADER.pack(b"X", 4))
        await writer.drain()
        while await reader.read(65_536):  # it takes in what was sent before it ends
            pass
    finally:
        writer.close()


async def _until(reader: asyncio.StreamReader, wanted: bytes) -> None:
    """Read messages up to one of a kind."""
    while True:
        kind, length = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        body = await reader.readexactly(length - 4)
        assert kind != b"E", body
        if kind == wanted:
            return
