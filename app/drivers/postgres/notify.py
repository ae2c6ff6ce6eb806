"""Wake-ups out: NOTIFY without a payload, after the commit it speaks of.

Never inside the writing transaction: a NOTIFY there takes a lock that ends group commit. A wake-up is only a hint;
one that fails is left to the listeners' polling. Called by verbs once their write has landed.
"""

from __future__ import annotations

from ...domain.errors import OutlastError
from ..protocol import Wake
from .database import Database

# Its own commit need not wait for the disk: after a server crash nobody is listening.
_NOTIFY = "select set_config('synchronous_commit', 'off', true), pg_notify(channel, '') from unnest($1::text[]) channel"


def channel_of(schema: str, wake: Wake) -> str:
    """Give the channel of a wake-up; one per schema, so that two in a database do not wake each other."""
    return f"{schema}_{wake.value}"


async def notify(db: Database, *wakes: Wake) -> None:
    """Wake who listens for `wakes`. Never fails; calls that overlap are merged into the next round of the first."""
    db.wakes.waiting.update(wakes)
    if db.wakes.is_ringing:
        return
    db.wakes.is_ringing = True
    try:
        while db.wakes.waiting:
            channels = [channel_of(db.schema, wake) for wake in db.wakes.waiting]
            db.wakes.waiting.clear()
            async with db.raw() as conn:
                await conn.execute(_NOTIFY, channels)
    except OutlastError:
        # What it speaks of is committed; failing the verb now would report a write as lost. Polling finds it.
        # The server's queue of notifications may be full, too, when a session listens and never reads.
        db.wakes.waiting.clear()
    finally:
        db.wakes.is_ringing = False
