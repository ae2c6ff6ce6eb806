"""Counts the store a few times a minute, for the gauges of a process without a worker and for what its pages remember.

A store that is away is not counted: the gauges stay as they were, and readiness tells about the outage. Called by the
role of the API and, under a server that is not ours, by the application itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..domain.errors import OutlastError
from ..domain.snapshot import Stats
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry

COUNT_SECONDS = 15.0


async def count_until(*over: asyncio.Event, count: Callable[[], Awaitable[Stats]], telemetry: Telemetry) -> None:
    """Read the store's counts every quarter of a minute until one of the events is set."""
    while not await first_of(*over, within=COUNT_SECONDS):
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                telemetry.store_counted(await count())
        except (OutlastError, TimeoutError):
            continue
