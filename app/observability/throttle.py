"""How often a repeated failure is said: an outage lasts minutes and fails many calls a second.

The first is said at once, then one line an interval that counts those left out: all kinds of failure together stay
below a line a second. Safe from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Throttle:
    """Admits one line per event and interval."""

    def __init__(self, *, interval_seconds: float = 10.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._missed: dict[str, int] = {}

    def admit(self, event: str) -> int | None:
        """Give the number of lines left out since the last one, or None when this one is left out as well."""
        now = self._monotonic()
        with self._lock:
            if event in self._last and now - self._last[event] < self._interval:
                self._missed[event] = self._missed.get(event, 0) + 1
                return None
            self._last[event] = now
            return self._missed.pop(event, 0)
