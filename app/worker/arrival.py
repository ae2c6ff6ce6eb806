"""The first calls of a life, made again while the store is away.

A store that is being replaced answers before it takes writes: having reached it once says nothing of the next call.
Used by `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..domain.errors import DriverUnavailable
from ..lifecycle.tasks import first_of
from .backoff import Backoff

T = TypeVar("T")


async def once_there(
    call: Callable[[], Awaitable[T]],
    *,
    within_seconds: float,
    leaving: asyncio.Event,
    monotonic: Callable[[], float],
    roll: Callable[[], float],
    on_back: Callable[[], object],
) -> T | None:
    """Give what a call answers that may be repeated; None when told to leave before it did.

    `on_back` hears of a store that was away once it is there again.

    Raises:
        DriverUnavailable: the store was still away after `within_seconds`. Anything else at once.
    """
    deadline, backoff = monotonic() + within_seconds, Backoff(roll)
    was_away = False
    while not leaving.is_set():
        try:
            answer = await call()
        except DriverUnavailable:
            was_away = True
            pause = backoff.failed()
            if monotonic() + pause >= deadline:
                raise
        else:
            if was_away:
                on_back()
            return answer
        await first_of(leaving, within=pause)
    return None
