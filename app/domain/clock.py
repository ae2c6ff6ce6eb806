"""Clocks as parameters: rows carry the database's time, durations come from a monotonic clock.

Only the memory driver, whose store it is, and tests take a whole clock; everything else is handed the one reading it
needs: `monotonic`, or admission's `now`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A source of wall time and of durations."""

    def now(self) -> datetime:
        """Give the wall time, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Give seconds from an arbitrary start that never step back."""
        ...


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Give the time it was last set to."""
        return self._now

    def monotonic(self) -> float:
        """Give the seconds it was moved since it was made."""
        return self._elapsed

    def advance(self, by: timedelta) -> None:
        """Move wall time and monotonic time forward alike."""
        self._now += by
        self._elapsed += by.total_seconds()
