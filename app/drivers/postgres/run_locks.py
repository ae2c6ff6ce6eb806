"""The locks by which a suspend and whatever ends one of its waits see each other, and the transactions they hold in.

A wait that is not committed yet has no row to lock, so both sides take an advisory lock of what is waited for: an
event's (tenant, name, key), or a child's id. They are taken in one order, before any row, and whoever has them looks
in a new statement: its snapshot is from after the other side's commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from uuid import UUID

from .database import Database, Raw

_CIRCLE_LOCKS = 256

# The rows come in the order of the array.
_TAKE = "select count(pg_advisory_xact_lock(k)) from unnest($1::bigint[]) k"


def looking(conn: Raw) -> AbstractAsyncContextManager[object]:
    """Open a transaction each statement of which sees what was committed before it, whatever the role's default."""
    return conn.transaction(isolation="read_committed")


def event_lock(db: Database, tenant: str, name: str, key: str) -> int:
    """Give the lock of an event's key."""
    return _number(db.schema, "event", tenant, name, key)


def child_lock(db: Database, child_id: UUID) -> int:
    """Give the lock of a child's end."""
    return _number(db.schema, "child", str(child_id))


def circle_lock(db: Database, job_id: UUID) -> int:
    """Give the lock of a job's place among runs that wait for each other. Jobs share few of them, so many cost few."""
    return _number(db.schema, "circle", str(job_id.int % _CIRCLE_LOCKS))


async def take(conn: Raw, locks: Iterable[int]) -> None:
    """Take locks until the transaction ends, in their order; asks the server for nothing when there are none."""
    ordered = sorted(set(locks))
    if ordered:
        await conn.execute(_TAKE, ordered)


def _number(*parts: str) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "big", signed=True)
