"""What of a run's record the code has passed by: nothing that it asks for later can be there.

A replay stops at the first step that is not recorded, so the code is not seen to return. What it has left behind is
still certain: a branch asks in one order only, and that order has gone on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..domain.step import MAIN_BRANCH, Place
from ..steps.history import Record


def passed_by(records: Sequence[Record], asked: Mapping[str, Place]) -> Record | None:
    """Give the first record that was not asked for and whose place in its branch is behind one that was."""
    left = [record for record in records if record.name not in asked]
    found = [record for record in left if _is_behind(record.place, asked.values())]
    return min(found, key=lambda record: record.place.number, default=None)


def _is_behind(place: Place, asked: Iterable[Place]) -> bool:
    here = _path(place)
    return here is not None and any(_is_before(here, there) for each in asked if (there := _path(each)) is not None)


def _is_before(one: Sequence[int], other: Sequence[int]) -> bool:
    """Say whether a place can only be asked for before another; paths are number, branch, number, branch, …, number."""
    for index in range(0, max(len(one), len(other)), 2):
        if one[index] != other[index]:
            return one[index] < other[index]
        if len(one) == index + 1 or len(other) == index + 1:
            return len(one) != len(other)  # at one number the code has a step where the record has branches, or so
        if one[index + 1] != other[index + 1]:
            return False  # side by side
    return False


def _path(place: Place) -> tuple[int, ...] | None:
    """Give a place as numbers; None inside a task that a body started by itself, which has no place in any order."""
    parts = place.branch.split(".") if place.branch != MAIN_BRANCH else []
    if not all(part.isdecimal() for part in parts):
        return None
    return (*map(int, parts), place.number)
