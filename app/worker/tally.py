"""Adds what this process has counted of attempts to the store's figures, a few times a minute, and once at the end.

What the store has not said to have taken is added again before anything else, and counted once. An idle worker adds
nothing, and sends nothing. Owned by `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry

EVERY_SECONDS = 15.0
# Of the end of a worker, which has other things to do with its time.
_LAST_SECONDS = 0.5


class TallyKeeper:
    """Keeps the figures of one life of a worker."""

    def __init__(self, *, driver: JobDriver, telemetry: Telemetry, roll: Callable[[], float]) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._roll = roll

    async def run(self, over: asyncio.Event) -> None:
        """Add what was counted, until over."""
        while not await first_of(over, within=EVERY_SECONDS * (1 - self._roll() / 4)):
            await self._add(1, within=None)

    async def end(self) -> None:
        """Add what is left, if the store takes it at once."""
        await self._add(2, within=_LAST_SECONDS)  # one that is owed, and what was counted since

    async def _add(self, batches: int, *, within: float | None) -> None:
        flow = self._telemetry.flow
        try:
            async with asyncio.timeout(within), flow.turn:
                for batch in filter(None, (flow.take() for _ in range(batches))):
                    await self._driver.add_flow(batch)
                    flow.added(batch)
        except Exception as error:  # noqa: BLE001 - said; the same batch is added again, and charts can do without
            self._telemetry.store_call_failed("add_flow", error)
