"""Gives back the slots of jobs whose bodies have ended, in the order they end, until the store has taken them.

Apart from the settles, which never wait for it: giving a slot back may have to wait for whoever decides about its key.
What is not given back by the end is swept once the worker's row is closed or its lease has passed. Runs `put`; one task
of the worker runs `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..domain.job import ClaimToken
from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry
from .backoff import Backoff

_BATCH = 100


class SlotReturn:
    """The way back of one life's slots. `on_returned` hears of each time that others may start."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        telemetry: Telemetry,
        roll: Callable[[], float],
        on_returned: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._on_returned = on_returned
        self._backoff = Backoff(roll)
        self._ended: list[ClaimToken] = []
        self._came = asyncio.Event()
        self._given_up = asyncio.Event()
        self._limit: asyncio.Timeout | None = None
        self.is_idle = asyncio.Event()
        self.is_idle.set()

    def put(self, token: ClaimToken) -> None:
        """Have a claim's slots given back: its body has ended, or never began."""
        self._ended.append(token)
        self.is_idle.clear()
        self._came.set()

    def give_up(self) -> None:
        """Stop: what is not given back by now is left to the sweep."""
        self._given_up.set()
        self._came.set()
        if self._limit is not None:  # a call under way may wait for a key longer than there is time
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Give back what comes until told to give up."""
        while not self._given_up.is_set():
            await self._came.wait()
            self._came.clear()
            while self._ended and not self._given_up.is_set():
                await self._give_back(self._ended[:_BATCH])
            if not self._ended:
                self.is_idle.set()

    async def _give_back(self, batch: list[ClaimToken]) -> None:
        try:
            async with asyncio.timeout(None) as self._limit:
                count = await self._driver.free_slots(batch)
        except Exception as error:  # noqa: BLE001 - said and repeated: giving back twice is harmless
            self._telemetry.store_call_failed("free_slots", error)
            await first_of(self._given_up, within=self._backoff.failed())
            return
        finally:
            self._limit = None
        self._backoff.succeeded()
        del self._ended[: len(batch)]
        if count:
            self._on_returned()
