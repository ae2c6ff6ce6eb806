"""A job that counts the database engines of its process."""

from __future__ import annotations

import gc

from sqlalchemy import Engine

from app.jobs import job


@job("process.engines")
async def engines() -> int:
    """Give how many database engines there are in this process."""
    gc.unfreeze()  # the process sets the heap of its start aside
    gc.collect()
    return sum(issubclass(type(found), Engine) for found in gc.get_objects())
