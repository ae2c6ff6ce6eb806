"""Does the event loop still turn? A stamp the loop renews and any thread may read.

Liveness probes ask here and nothing else: a process whose loop is stuck should be restarted, one whose database is
away should not. Owned by the composition root.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_BEAT_SECONDS = 0.5


class LoopPulse:
    """Stamps the time from within a loop; it beats no more once the last stamp is older than `patience_seconds`."""

    def __init__(self, *, patience_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._stamp = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to stamp, on the running loop."""
        self._beat(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stamp no more."""
        if self._timer is not None:
            self._timer.cancel()

    def is_beating(self) -> bool:
        """Say whether the loop turned lately; safe in any thread."""
        return self._monotonic() - self._stamp <= self._patience_seconds

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stamp = self._monotonic()
        self._timer = loop.call_later(_BEAT_SECONDS, self._beat, loop)
