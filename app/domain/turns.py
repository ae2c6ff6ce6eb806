"""Turns: in which order the jobs of a fair queue begin, so that its tenants share what it does by their weights.

Each tenant has a virtual time that a start moves by `1 / weight`; the tenant that is furthest behind is next, and its
jobs keep the order they have among themselves. The queue's own time is when the last start began: a tenant that comes
back begins there, and has saved up nothing. Pure; the stores keep the times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

DEFAULT_WEIGHT = 1
MOST_WEIGHT = 1_000
# Of a queue's weights so many are set at once, and shown.
MOST_WEIGHTS = 1_000
# What rounding makes of two times that are one is no difference.
_DIGITS = 9


class Lined(NamedTuple, Generic[T]):
    """A job that waits in a fair queue: its place by rank and age, and its tenant's time and weight."""

    place: tuple[int, int]
    tenant: str
    start: float
    weight: int
    job: T


class Placed(NamedTuple, Generic[T]):
    """A job in the place that its turn gives it: among its queue's places the one it is to begin by."""

    place: tuple[int, int]
    job: T


def in_turns(waiting: Iterable[Lined[T]]) -> list[Placed[T]]:
    """Give the jobs of one queue in the order in which they begin.

    They share the places they have: between queues the order stays that of rank and age. Of two whose turn it is the
    one that was ready first begins.
    """
    of_tenant: defaultdict[str, list[Lined[T]]] = defaultdict(list)
    places: list[tuple[int, int]] = []
    for one in waiting:
        of_tenant[one.tenant].append(one)
        places.append(one.place)
    tagged = [
        (round(one.start + number / one.weight, _DIGITS), one.place, one.job)
        for line in of_tenant.values()
        for number, one in enumerate(sorted(line, key=_by_place))
    ]
    tagged.sort(key=lambda tag: tag[:2])
    return [Placed(place, job) for place, (_, _, job) in zip(sorted(places), tagged, strict=True)]


def ahead_of(tag: float, *, start: float, weight: int) -> tuple[int, bool]:
    """Give how many jobs of a tenant begin before a time, if it has so many, and whether another begins just then."""
    number = (tag - start) * weight
    whole = round(number)
    is_just_then = abs(number - whole) < 10**-_DIGITS and whole >= 0
    return max(whole if is_just_then else ceil(number), 0), is_just_then


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How far a tenant has come in a queue: when its last start ends, and when that began, in virtual time.

    `weight` is an operator's, None where nobody has set one.
    """

    finish: float = 0.0
    started: float = 0.0
    weight: int | None = None

    @property
    def share(self) -> int:
        """Give the weight that counts."""
        return DEFAULT_WEIGHT if self.weight is None else self.weight

    def begins(self, time: float) -> float:
        """Give when its next start begins, at a time of the queue."""
        return max(self.finish, time)

    def moved(self, begins: float, starts: int) -> Turn:
        """Give it after so many starts, the first of which began then."""
        begins = max(self.finish, begins)
        started = max(self.started, begins + (starts - 1) / self.share)
        return replace(self, finish=begins + starts / self.share, started=started)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """Whose turn a job waits for: its tenant, the tenant's weight, and how many tenants have jobs that wait with it.

    `own_ahead` are jobs of its tenant before it, counted up to `MOST_AHEAD`.
    """

    tenant: str
    weight: int
    tenants: int
    own_ahead: int


def _by_place(one: Lined[T]) -> tuple[int, int]:
    return one.place
