"""What is recorded of a run, looked up by name and by place: whether the code asks for it as it was recorded.

Reads only. A step's name and its place in the order of its branch both have to match; what is recorded and was never
asked for is found when a branch ends. Used by the recorder.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TypeAlias

from ..domain.step import MAIN_BRANCH, Place, RunHistory, StepKind, StepView, WaitView

Record: TypeAlias = StepView | WaitView


class History:
    """The records of one run: steps that are over, and waits that are not."""

    def __init__(self, history: RunHistory) -> None:
        self.steps = history.steps
        self.waits = history.waits
        self._by_name: dict[str, Record] = {wait.name: wait for wait in history.waits}
        self._by_name.update((step.name, step) for step in history.steps)
        self._by_place = {record.place: record for record in self._by_name.values()}
        self._branches: dict[Place, dict[int, Record]] = {}  # of each gather, by its place: a record in each branch
        for record in self._by_name.values():
            for place, index in _gathers_around(record.place.branch):
                self._branches.setdefault(place, {}).setdefault(index, record)

    def at(self, place: Place, name: str, kind: StepKind) -> tuple[Record | None, Record | None]:
        """Give what answers a step that is asked for, and what is recorded that it does not match; at most one."""
        if not self._by_name:
            return None, None
        here = self._by_place.get(place)
        if here is not None:
            return (here, None) if (here.name, here.kind) == (name, kind) else (None, here)
        return None, self._by_name.get(name) or self.beside(place, 0)

    def beside(self, place: Place, count: int) -> Record | None:
        """Give what is recorded of a gather at a place that has more than `count` branches; None: nothing."""
        branches = self._branches.get(place, {})
        return next((record for index, record in branches.items() if index >= count), None)

    def goes_on_behind(self, place: Place) -> bool:
        """Say whether something is recorded behind a place in its branch, or in a gather of that."""
        numbers = (number_in(place.branch, other) for other in self._by_place)
        return any(number is not None and number > place.number for number in numbers)

    def alone(self, place: Place) -> Record | None:
        """Give the step that is recorded at a place."""
        return self._by_place.get(place)

    def unasked(self, branch: str, asked: Container[str]) -> Record | None:
        """Give the first record within a branch whose name was not asked for."""
        if not self._by_name:
            return None
        left = [record for record in self._within(branch) if record.name not in asked]

        def order(record: Record) -> tuple[bool, int, str, int]:
            number = number_in(branch, record.place)
            return number is None, number or 0, record.place.branch, record.place.number

        # What is recorded in a task of the body's own has no place in the order: it is named where nothing else is.
        return min(left, key=order, default=None)

    def _within(self, branch: str) -> Iterator[Record]:
        return (record for record in self._by_name.values() if is_within(branch, record.place.branch))


# Of a run that has recorded nothing: most are begun and ended by one attempt. Never changed.
NOTHING = History(RunHistory())


def is_within(outer: str, branch: str) -> bool:
    """Say whether a branch is another, or inside it."""
    return outer in (MAIN_BRANCH, branch) or branch.startswith(f"{outer}.")


def _gathers_around(branch: str) -> Iterator[tuple[Place, int]]:
    """Give the place of every gather that a branch is inside of, and the index of the branch taken there."""
    outer, parts = MAIN_BRANCH, iter(branch.split(".") if branch else ())
    for part in parts:
        inner = part
        if part.isdecimal():
            index = next(parts)
            yield Place(outer, int(part)), int(index)
            inner = f"{part}.{index}"
        outer = inner if outer == MAIN_BRANCH else f"{outer}.{inner}"


def number_in(outer: str, place: Place) -> int | None:
    """Give where a place lies in the order of a branch: its own number, or that of the gather it is inside of."""
    if place.branch == outer:
        return place.number
    if not is_within(outer, place.branch):
        return None
    first = place.branch.removeprefix(outer).lstrip(".").split(".", 1)[0]
    return int(first) if first.isdecimal() else None


def said(record: Record) -> str:
    """Name a record and its place for people."""
    return f"{record.kind.value} step {record.name!r}, {placed(record.place)}"


def placed(place: Place) -> str:
    """Say a place for people."""
    return (
        f"number {place.number}" if place.branch == MAIN_BRANCH else f"number {place.number} of branch {place.branch}"
    )
