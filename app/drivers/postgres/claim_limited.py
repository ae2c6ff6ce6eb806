"""The claim of queues that let only so many of their jobs run: counted and taken under one lock per queue.

Two statements: who waits for the lock must count with a snapshot of after it. A process that is frozen with the lock
holds up the claims of that queue until its session is ended, and nobody's claims of other queues for more than
`PATIENCE`. Called by `claim`, for the queues of which it has found jobs to be next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from ...domain.errors import DriverUnavailable
from .database import Database, Raw
from .limited import LOCK, LOCK_NOT_HAD, Guarded, lock_keys

# Claims take milliseconds; whoever has the lock for longer is in trouble.
PATIENCE = timedelta(seconds=1)

Rows: TypeAlias = list[Any]


async def under_locks(db: Database, queues: Sequence[str], take: Callable[[Raw], Awaitable[Rows]]) -> Rows | None:
    """Take under the locks of these queues, in one transaction; None where somebody keeps one of them."""
    keys = lock_keys(db.schema, Guarded.RUNNING, queues)
    milliseconds = str(int(PATIENCE.total_seconds() * 1000))

    async def once(conn: Raw) -> Rows:
        async with conn.transaction():
            await conn.execute(db.in_schema(LOCK), keys, milliseconds)
            return await take(conn)

    try:
        return await db.run(once)
    except DriverUnavailable as error:
        if error.details.get("sqlstate") != LOCK_NOT_HAD:
            raise
        return None


def quotas_of(planned: str | None) -> dict[str, int]:
    """Read which limited queues' jobs are next, and how many of each, from a claim's first row."""
    pairs = (part.split(" ") for part in (planned or "").split(",") if part)
    return {queue: int(count) for queue, count in pairs}
