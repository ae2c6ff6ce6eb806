"""How old the oldest ready job was over a week, as this process counted: fine for an hour, coarser further back.

No counts are kept in the store for it, so a process knows what it saw itself; where it counted nothing there is a gap.
Owned by `overview`; bounded, and no I/O.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_HOUR, _DAY, _WEEK = 3_600.0, 86_400.0, 604_800.0
# Of every stretch of so many seconds the worst is kept, as far back as so many seconds.
_TIERS = ((10.0, _HOUR), (300.0, _DAY), (1_800.0, _WEEK))


class Sample(NamedTuple):
    """How many seconds ago the oldest ready job was so many seconds old."""

    ago_seconds: float
    oldest_ready_seconds: float


class History:
    """Remembers the worst of every stretch. Instants are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._tiers = [
            (step, reach, deque[tuple[float, float]](maxlen=round(reach / step) + 1)) for step, reach in _TIERS
        ]

    def add(self, at: float, oldest_ready_seconds: float) -> None:
        """Remember what was counted at an instant, later than those before."""
        for step, _, kept in self._tiers:
            if kept and at - kept[-1][0] < step:
                kept[-1] = (kept[-1][0], max(kept[-1][1], oldest_ready_seconds))
            else:
                kept.append((at, oldest_ready_seconds))

    def since(self, now: float, seconds: float) -> tuple[Sample, ...]:
        """Give what is known of the last so many seconds, oldest first, from the finest tier that reaches so far."""
        kept = next((kept for _, reach, kept in self._tiers if seconds <= reach), self._tiers[-1][2])
        return tuple(Sample(now - at, oldest) for at, oldest in kept if now - at <= seconds)
