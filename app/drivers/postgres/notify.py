"""Wake-ups out: what a verb calls once its write has landed.

Never inside the writing transaction: a NOTIFY there takes a lock that ends group commit. A wake-up is only a hint;
sending it is the `ringer`'s.
"""

from __future__ import annotations

from ..protocol import Wake
from .database import Database


async def notify(db: Database, *wakes: Wake) -> None:
    """Wake who listens for `wakes`, soon: a verb that has committed does not wait for it. Never fails."""
    db.ringer.ring(wakes)
