"""Where a relay's look for staged rows begins: most looks skip the front of the index, a look now and then does not.

While anybody keeps a snapshot open, the index keeps entries of rows published since, and a look from the front walks
all of them. A row may commit long after it was staged, so skipping is only a guess: what it misses is found within
`WHOLE_EVERY`. Pure but for the clock, which is injected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

WHOLE_EVERY = timedelta(seconds=10)
# Rows staged this long before a whole look may commit after it and still be found by the looks that skip.
MARGIN = timedelta(seconds=10)
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look: the least `staged_at` it asks for, and whether that is all there is."""

    since: datetime
    is_whole: bool


class Looks:
    """What one process has seen of one outbox."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since = BEGINNING
        self._whole_at: float | None = None

    def next(self) -> Look:
        """Give the next look."""
        now = self._monotonic()
        if self._whole_at is None or now - self._whole_at >= WHOLE_EVERY.total_seconds():
            self._whole_at = now
            return Look(since=BEGINNING, is_whole=True)
        return Look(since=self._since, is_whole=False)

    def took(self, look: Look, rows: Sequence[Mapping[str, Any]], batch: int, began: datetime) -> bool:
        """Note what a look took; gives whether it took all it may, so that there may be more.

        `rows` are those of a look in order, each with the number `taken` before the cut. `began` is the store's time of
        a whole one.
        """
        is_full = bool(rows) and (rows[0]["taken"] >= batch or len(rows) < rows[0]["taken"])
        if is_full:
            self._since = rows[-1]["staged_at"]
        elif look.is_whole:
            self._since = began - MARGIN
        return is_full

    def forget(self) -> None:
        """Look from the front again: rows were put back, or the store was away."""
        self._whole_at = None
