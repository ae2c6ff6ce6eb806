"""A listener of a test's own: what it heard, and a way to wait for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.drivers.protocol import Wake
from tests.support.drivers import DriverEnv


class Ears:
    """What a listener heard, and a way to wait for more."""

    def __init__(self) -> None:
        self.heard: list[Wake] = []
        self.ever: set[Wake] = set()
        self._changed = asyncio.Event()

    def __call__(self, wake: Wake) -> None:
        self.heard.append(wake)
        self.ever.add(wake)
        self._changed.set()

    async def wait_for(self, wake: Wake) -> None:
        """Wait until `wake` was heard since the last call that waited."""
        async with asyncio.timeout(5):
            while wake not in self.heard:
                self._changed.clear()
                await self._changed.wait()
        self.heard.clear()


@asynccontextmanager
async def hearing(env: DriverEnv) -> AsyncIterator[Ears]:
    """Listen from now on."""
    ears = Ears()
    async with env.driver.listen(ears):
        await ears.wait_for(Wake.LISTENING)
        yield ears
