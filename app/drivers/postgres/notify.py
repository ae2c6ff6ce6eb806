"""Wake-ups out: what a verb calls once its write has landed.

Never inside the writing transaction: a NOTIFY there takes a lock that ends group commit. A wake-up is only a hint;
sending it is the `ringer`'s.
"""

from __future__ import annotations

from ..protocol import Wake
from .database import Database

# What a claim that is taken away is news for: its worker, and who waits for its place in a queue that lets only so many
# of its jobs run. Of a claim whose worker lets go of it that worker tells.
REVOKES = (Wake.REVOKED, Wake.READY)


async def notify(db: Database, *wakes: Wake) -> None:
    """Wake who listens for `wakes`, soon: a verb that has committed does not wait for it. Never fails."""
    db.ringer.ring(wakes)
