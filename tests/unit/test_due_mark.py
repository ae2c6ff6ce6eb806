"""The due mark: a process skips what it has looked at, less a margin, until time or a new connection undoes that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.drivers.postgres.due_mark import MARGIN, DueMark

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALL = datetime(1970, 1, 1, tzinfo=UTC)


class Connection:
    """Stands for one: known by its identity."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def mark(clock: Clock | None = None, *, roll: float = 0.0) -> DueMark:
    return DueMark(monotonic=clock or Clock(), roll=lambda: roll)


def test_the_first_look_is_at_everything() -> None:
    assert mark().begin(Connection()) == ALL


def test_the_next_look_begins_a_margin_before_the_end_of_the_last() -> None:
    made, connection = mark(), Connection()
    made.begin(connection)
    made.learn(NOW)
    assert made.begin(connection) == NOW - MARGIN
    made.learn(NOW + timedelta(seconds=1))
    assert made.begin(connection) == NOW - MARGIN + timedelta(seconds=1)


def test_a_new_connection_looks_at_everything() -> None:
    made, first, second = mark(), Connection(), Connection()
    for connection in (first, second):
        assert made.begin(connection) == ALL
        made.learn(NOW)
    assert [made.begin(connection) for connection in (first, second)] == [NOW - MARGIN] * 2


@pytest.mark.parametrize(("roll", "seconds"), [(0.0, 10.0), (1.0, 30.0)])
def test_everything_is_looked_at_again_after_ten_to_thirty_seconds(roll: float, seconds: float) -> None:
    clock, connection = Clock(), Connection()
    made = mark(clock, roll=roll)
    made.begin(connection)
    made.learn(NOW)
    clock.now += seconds - 0.1
    assert made.begin(connection) == NOW - MARGIN
    clock.now += 0.1
    assert made.begin(connection) == ALL
    made.learn(NOW)
    assert made.begin(connection) == NOW - MARGIN
