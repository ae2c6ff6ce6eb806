"""The pause between repeats of a failing call to the store: growing, jittered, capped low.

Capped at two seconds, so that work goes on within seconds of the store's return, and where a lease waits for it at a
sixth of that, so that a worker is heard before it is taken for gone; jittered, so that a fleet does not come back as
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 2.0


class Backoff:
    """Counts failures in a row. `roll` gives numbers in [0, 1); `lease_seconds` is of the lease that waits, if any."""

    def __init__(self, roll: Callable[[], float], *, lease_seconds: float = math.inf) -> None:
        self._roll = roll
        self._longest = min(_LONGEST_SECONDS, lease_seconds / 6)
        self._failures = 0

    def failed(self) -> float:
        """Count a failure and give the seconds to wait."""
        self._failures += 1
        bound = min(_FIRST_SECONDS * 2.0 ** min(self._failures - 1, 10), self._longest)
        return bound * (0.5 + self._roll() / 2)

    def succeeded(self) -> None:
        """Start over."""
        self._failures = 0
