"""What the way between two ends can be like: slow, uneven, narrow, and cut now and then; seeded.

Bytes keep their order and are delayed side by side, not one after the other, as on a long line. Used by `proxy`.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Weather:
    """A round trip takes `round_trip_seconds`, give or take the share `jitter` of it.

    `resets` is the chance that a statement's connection is cut, before the server sees it or before its reply arrives.
    `bytes_per_second` bounds each connection in each direction.
    """

    seed: int
    round_trip_seconds: float = 0.0
    jitter: float = 0.0
    resets: float = 0.0
    bytes_per_second: float | None = None
    cuts: int = 0
    _dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def one_way_seconds(self) -> float:
        """Give how long the next bytes are on their way."""
        return self.round_trip_seconds / 2 * (1 + self.jitter * self._dice.uniform(-1, 1))

    def cuts_now(self) -> bool:
        """Say whether lightning strikes; asked on a statement's way there and on its reply's way back."""
        strikes = self._dice.random() < self.resets / 2
        self.cuts += strikes
        return strikes


class Lane:
    """One direction of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._last = 0.0

    def send(self, data: bytes, weather: Weather | None) -> None:
        """Let bytes go; they arrive when they arrive."""
        at = asyncio.get_running_loop().time()
        if weather is not None:
            at += weather.one_way_seconds()
        at = max(at, self._last)
        if weather is not None and weather.bytes_per_second is not None:
            at += len(data) / weather.bytes_per_second
        self._last = at
        self._under_way.put_nowait((at, data))

    async def run(self) -> None:
        """Hand out what arrives."""
        while True:
            at, data = await self._under_way.get()
            wait = at - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)
            self._writer.write(data)
            await self._writer.drain()
