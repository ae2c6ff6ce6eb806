"""The real clock: the memory driver is the store, so the process's clock is the store's.

The only place in the product that reads wall time; everything else takes a `Clock` or the database's.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Wall time and monotonic time of this machine."""

    def now(self) -> datetime:
        """Give the wall time, aware, UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one implementation of the injected clock

    def monotonic(self) -> float:
        """Give seconds from an arbitrary start that never step back."""
        return time.monotonic()
