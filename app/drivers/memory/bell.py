"""Wake-ups inside one process: rung after a verb has let go of the lock, heard on each listener's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from ..protocol import Wake


class _Listener(NamedTuple):
    loop: asyncio.AbstractEventLoop
    on_wake: Callable[[Wake], None]
    news: frozenset[Wake]


class Bell:
    """Who listens, and what has happened since the last ring."""

    def __init__(self) -> None:
        self._listeners: dict[object, _Listener] = {}
        self._pending: set[Wake] = set()

    def add(self, wake: Wake) -> None:
        """Note that something happened; heard once the current verb is done. Called under the store's lock."""
        self._pending.add(wake)

    def take(self) -> frozenset[Wake]:
        """Give what happened since the last time; called under the store's lock."""
        pending = frozenset(self._pending)
        self._pending.clear()
        return pending

    def ring(self, wakes: frozenset[Wake]) -> None:
        """Tell every listener what happened, each kind once; called without the lock, from any thread."""
        for wake in sorted(wakes):
            for loop, on_wake, news in tuple(self._listeners.values()):
                if wake not in news:
                    continue
                with contextlib.suppress(RuntimeError):  # a loop that ended with its listener still in place
                    loop.call_soon_threadsafe(on_wake, wake)

    @asynccontextmanager
    async def listen(self, on_wake: Callable[[Wake], None], news: frozenset[Wake]) -> AsyncIterator[None]:
        """Call `on_wake` on the running loop for the wake-ups in `news` while the context is open."""
        entry = object()
        self._listeners[entry] = _Listener(asyncio.get_running_loop(), on_wake, news)
        on_wake(Wake.LISTENING)
        try:
            yield
        finally:
            del self._listeners[entry]
