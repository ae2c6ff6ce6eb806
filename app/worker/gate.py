"""When this worker looks into the gate, and how much of its room it lets limited jobs have.

A worker whose job types have no limits looks only while the store says that the gate is not empty: another version's
jobs may wait there. Decides nothing about jobs; the store does. Asked by the claim loop, on the worker's loop alone.
"""

from __future__ import annotations

from collections.abc import Callable

from ..domain.limit import Admitted
from ..domain.snapshot import Due

# Somebody else was deciding about the same keys: their transaction takes about as long.
_SOON_SECONDS = 0.005
_SPREAD_SECONDS = 0.015
_AFTER_SECONDS = 0.005  # a rate is looked at this much after it lets the next one start, not before


class GateWatch:
    """What one life of a worker knows of the gate. `on_news` hears that it is to be looked into sooner than thought."""

    def __init__(
        self,
        *,
        is_declared: bool,
        monotonic: Callable[[], float],
        roll: Callable[[], float],
        on_news: Callable[[], None],
    ) -> None:
        self._is_declared = is_declared
        self._is_told = False
        self._monotonic = monotonic
        self._roll = roll
        self._on_news = on_news
        self._may_be_more = True
        self._look_at: float | None = None
        self._is_others_turn = False
        self.has_looked = False

    @property
    def is_on(self) -> bool:
        """Say whether there is any reason to look."""
        return self._is_declared or self._is_told

    @property
    def is_wanted(self) -> bool:
        """Say whether a look may find something now."""
        if not self.is_on:
            return False
        return self._may_be_more or (self._look_at is not None and self._monotonic() >= self._look_at)

    @property
    def is_timed(self) -> bool:
        """Say whether a look may find something from some instant on."""
        return self.is_on and self._look_at is not None

    def woken(self) -> None:
        """Note that something became ready, or a slot was given back."""
        self._may_be_more = True

    def told(self, due: Due) -> None:
        """Note what a look of the maintenance's found."""
        was_on, self._is_told = self.is_on, due.is_gated
        if due.is_gated and not was_on:
            self._may_be_more = True
            self._on_news()
        elif due.admit_in is not None and self.is_on:
            self._look_by(due.admit_in.total_seconds() + _AFTER_SECONDS)
            self._on_news()

    def most(self, room: int, *, has_others: bool) -> int:
        """Give how many limited jobs may take places: half of the room while others wait for it, too."""
        if not has_others:
            return room
        if room > 1:
            return room // 2
        self._is_others_turn = not self._is_others_turn
        return 0 if self._is_others_turn else 1

    def begins(self) -> None:
        """Note that a look begins; what wakes the worker from here on may be of what it does not see, and stands."""
        self._may_be_more = False
        if self._look_at is not None and self._look_at <= self._monotonic():
            self._look_at = None  # a later one stands: this look does not see again what is parked until then

    def note(self, admitted: Admitted) -> None:
        """Note what a look gave, and when the next one may give more."""
        self.has_looked = True
        self._may_be_more |= admitted.is_full
        if admitted.is_contended:
            self._look_by(_SOON_SECONDS + _SPREAD_SECONDS * self._roll())
        if admitted.next_in is not None:
            self._look_by(admitted.next_in.total_seconds() + _AFTER_SECONDS)

    def rest(self, seconds: float) -> float:
        """Give how long the loop may rest, at most so long."""
        if not self.is_on or self._look_at is None:
            return seconds
        return max(min(seconds, self._look_at - self._monotonic()), 0.0)

    def _look_by(self, seconds: float) -> None:
        at = self._monotonic() + seconds
        self._look_at = at if self._look_at is None else min(self._look_at, at)
