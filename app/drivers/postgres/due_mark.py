"""The due mark: the time before which a process need not look for due jobs again.

A snapshot that somebody keeps open keeps the index entry of every job that was promoted or cancelled while it waited,
and each look for due jobs would walk all of them. Owns the rule that skips them. Pure, no SQL; one per process, fed and
asked by `promote`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from weakref import WeakSet

# A job is put to wait at its statement's instant or later, and is seen when that is committed. One that took longer
# than this is met when the mark is forgotten, as is one that was passed over while somebody held it and let it go.
MARGIN = timedelta(seconds=10)
_SHORTEST_SECONDS = 10.0
_SPREAD_SECONDS = 20.0

_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class DueMark:
    """The mark of one process: forgotten every 10 to 30 s and on every new connection, whose server may be another."""

    monotonic: Callable[[], float]
    roll: Callable[[], float]
    _after: datetime = _BEFORE_ALL
    _seen: WeakSet[object] = field(default_factory=WeakSet)
    _forget_at: float = 0.0

    def begin(self, connection: object) -> datetime:
        """Give the time to look from, on a connection."""
        if connection not in self._seen or self.monotonic() >= self._forget_at:
            self._seen.add(connection)
            self._after = _BEFORE_ALL
            self._forget_at = self.monotonic() + _SHORTEST_SECONDS + _SPREAD_SECONDS * self.roll()
        return self._after

    def learn(self, looked_to: datetime) -> None:
        """Learn from a look that took everything due up to `looked_to` but what was locked or not committed yet."""
        self._after = looked_to - MARGIN
