"""One axis for everything that happened to a job: where an instant is, in percent of the width.

Folded, a long idle stretch takes a fixed share and attempts share the rest by the square roots of their lengths, so
that a run of ms and a sleep of days read on one line; true to scale, the axis is linear. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt

_LONG = timedelta(seconds=10)
_FOLDED = 9.0
_OPEN = 12.0
_LEAST = 8.0
_SHORT = 2.0
_WHOLE = 100.0
_TICKS_APART = 9.5
_LEAST_SPAN = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of the axis: an attempt, or the time between two. `x` and `width` are percent."""

    start: datetime
    end: datetime
    is_attempt: bool
    x: float = 0.0
    width: float = 0.0

    @property
    def lasted(self) -> timedelta:
        """Give its length in time."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The stretches of a job's life in order, without a hole."""

    stretches: tuple[Stretch, ...]

    def x(self, at: datetime) -> float:
        """Give where an instant is."""
        for stretch in self.stretches:
            if at <= stretch.end:
                share = max(timedelta(), at - stretch.start) / max(stretch.lasted, _LEAST_SPAN)
                return round(stretch.x + share * stretch.width, 2)
        return _WHOLE

    def ticks(self) -> Iterator[tuple[float, datetime]]:
        """Give the beginnings of stretches that have room for their time."""
        last = -_TICKS_APART
        for stretch in self.stretches:
            if (stretch.is_attempt or stretch.width >= _FOLDED / 2) and last + _TICKS_APART <= stretch.x <= 91:  # noqa: PLR2004 - room
                last = stretch.x
                yield round(stretch.x, 2), stretch.start


def axis_of(attempts: Sequence[tuple[datetime, datetime]], *, first: datetime, last: datetime, is_folded: bool) -> Axis:
    """Lay out a life from `first` to `last` with its attempts in order."""
    stretches = list(_stretches(attempts, first, max(last, first + _LEAST_SPAN)))
    whole = sum((each.lasted for each in stretches), timedelta())
    weights = _folded(stretches) if is_folded else [each.lasted / whole for each in stretches]
    total, x, placed = sum(weights), 0.0, []
    for stretch, weight in zip(stretches, weights, strict=True):
        width = _WHOLE * weight / total
        placed.append(
            Stretch(start=stretch.start, end=stretch.end, is_attempt=stretch.is_attempt, x=round(x, 3), width=width)
        )
        x += width
    return Axis(stretches=tuple(placed))


def _stretches(attempts: Sequence[tuple[datetime, datetime]], first: datetime, last: datetime) -> Iterator[Stretch]:
    at = first
    for start, end in attempts:
        begins = max(start, at)
        if begins > at:
            yield Stretch(start=at, end=begins, is_attempt=False)
        ends = max(end, begins + _LEAST_SPAN)
        yield Stretch(start=begins, end=ends, is_attempt=True)
        at = ends
    if last > at:
        yield Stretch(start=at, end=last, is_attempt=False)


def _folded(stretches: Sequence[Stretch]) -> list[float]:
    idle = [
        0.0 if each.is_attempt else _SHORT if each.lasted < _LONG else _OPEN if each is stretches[-1] else _FOLDED
        for each in stretches
    ]
    left = max(_WHOLE - sum(idle), 2 * _LEAST)
    roots = [sqrt(max(each.lasted.total_seconds(), 0.0)) if each.is_attempt else 0.0 for each in stretches]
    all_roots = sum(roots) or 1.0
    return [
        max(_LEAST, left * root / all_roots) if stretch.is_attempt else share
        for stretch, root, share in zip(stretches, roots, idle, strict=True)
    ]
