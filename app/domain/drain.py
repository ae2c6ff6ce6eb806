"""Workers that leave, as the store knows it: what they show of their drain, and being asked for one.

Values only. Times are the store's; a worker gives it spans and never its own clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainShown:
    """How far a worker's drain is; `left` is the time until its deadline, None for a stop without one."""

    phase: str
    reason: str | None = None
    left: timedelta | None = None


class DrainAsk(StrEnum):
    """What asking a worker to drain found: it will, it has left already, or there never was such a worker."""

    ASKED = "asked"
    GONE = "gone"
    UNKNOWN = "unknown"
