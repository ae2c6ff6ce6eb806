"""The pause between repeats of a failing call to the store: growing, jittered, capped low.

Capped at two seconds, so that work goes on within seconds of the store's return; jittered, so that a fleet does not
come back as one.
"""

from __future__ import annotations

from collections.abc import Callable

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 2.0


class Backoff:
    """Counts failures in a row. `roll` gives numbers in [0, 1)."""

    def __init__(self, roll: Callable[[], float]) -> None:
        self._roll = roll
        self._failures = 0

    def failed(self) -> float:
        """Count a failure and give the seconds to wait."""
        self._failures += 1
        bound = min(_FIRST_SECONDS * 2.0 ** min(self._failures - 1, 10), _LONGEST_SECONDS)
        return bound * (0.5 + self._roll() / 2)

    def succeeded(self) -> None:
        """Start over."""
        self._failures = 0
