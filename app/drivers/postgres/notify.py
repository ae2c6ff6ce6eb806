"""Wake-ups out: NOTIFY without a payload, after the commit it speaks of.

Never inside the writing transaction: a NOTIFY there takes a lock that ends group commit. A wake-up is only a hint;
one that fails is left to the listeners' polling. Called by verbs once their write has landed.
"""

from __future__ import annotations

import asyncio

from ...domain.errors import OutlastError
from ..protocol import Wake
from .database import Database

# Its own commit need not wait for the disk: after a server crash nobody is listening.
_NOTIFY = "select set_config('synchronous_commit', 'off', true), pg_notify(channel, '') from unnest($1::text[]) channel"

_LAST_ROUND_SECONDS = 1.0


def channel_of(schema: str, wake: Wake) -> str:
    """Give the channel of a wake-up; one per schema, so that two in a database do not wake each other."""
    return f"{schema}_{wake.value}"


async def notify(db: Database, *wakes: Wake) -> None:
    """Wake who listens for `wakes`, soon: a verb that has committed does not wait for it. Never fails.

    One task of the driver sends what has gathered since its last round, so that a crowd of writers costs one round
    trip and none of them rings for the others.
    """
    db.wakes.waiting.update(wakes)
    if db.wakes.ringing is None or db.wakes.ringing.done():
        db.wakes.ringing = asyncio.get_running_loop().create_task(_ring(db), name="outlast.notify")


async def settle_wakes(db: Database) -> None:
    """Let the round under way end, at most a second; called when the driver closes."""
    ringing = db.wakes.ringing
    if ringing is not None and not ringing.done():
        await asyncio.wait((ringing,), timeout=_LAST_ROUND_SECONDS)
        ringing.cancel()
        await asyncio.wait((ringing,))


async def _ring(db: Database) -> None:
    try:
        while db.wakes.waiting:
            channels = [channel_of(db.schema, wake) for wake in db.wakes.waiting]
            db.wakes.waiting.clear()
            async with db.raw() as conn:
                await conn.execute(_NOTIFY, channels)
    except OutlastError:
        # What it speaks of is committed, and polling finds it. The server's queue of notifications may be full, too,
        # when a session listens and never reads.
        db.wakes.waiting.clear()
