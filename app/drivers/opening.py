"""Opening a store that may not be there yet, and closing one that may never answer: both within a bound."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Protocol

from ..domain.errors import DriverUnavailable
from .protocol import JobDriver

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_CLOSE_SECONDS = 2.0


class Store(Protocol):
    """What can be opened: a driver, an outbox."""

    async def open(self) -> None:
        """Make it usable."""
        ...


async def open_driver(driver: Store, *, within: timedelta) -> bool:
    """Open the store, trying again while it is away; gives whether it was.

    Raises:
        DriverUnavailable: it did not answer within `within`.
        SchemaOutdated: it answered, with a schema older than this code.
    """
    clock = asyncio.get_running_loop()
    deadline = clock.time() + within.total_seconds()
    pause, was_away = _FIRST_PAUSE_SECONDS, False
    while True:
        try:
            await driver.open()
        except DriverUnavailable:
            if clock.time() + pause >= deadline:
                raise
            was_away = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        else:
            return was_away


async def close_driver(driver: JobDriver) -> bool:
    """Close the store; False when it did not come to an end in time and was left to the process's own end."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await driver.close()
    except TimeoutError:
        return False
    return True
