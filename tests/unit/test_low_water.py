"""The low-water mark by example: when it is set, when it is forgotten, and when it is looked below it."""

from __future__ import annotations

import pytest

from app.drivers.postgres.low_water import Horizon, LowWater, Stretch

QUEUE = "default"


class Connection:
    """Something with an identity."""


class Clock:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def low_water(clock: Clock | None = None, *, roll: float = 0.0) -> LowWater:
    return LowWater(monotonic=clock or Clock(), roll=lambda: roll)


def stretches(water: LowWater) -> list[Stretch]:
    return list(water.stretches([QUEUE]))


def took(water: LowWater, life: int, *seqs: int, xmin: int, xid: int, rank: int = 11) -> None:
    water.learn(life, [(QUEUE, rank, seq) for seq in seqs], Horizon(xmin, xid))


WHOLE = [Stretch(QUEUE, -32768, 0, 32767)]
MARKED = [Stretch(QUEUE, -32768, 0, 11), Stretch(QUEUE, 11, 7, 32767)]


def marked(clock: Clock | None = None, *, roll: float = 0.0) -> tuple[LowWater, Connection, int]:
    """Give marks that begin above 7."""
    water, connection = low_water(clock, roll=roll), Connection()
    life = water.begin(connection, "names")
    took(water, life, 5, 7, xmin=100, xid=101)
    took(water, life, 8, 9, xmin=101, xid=102)
    assert stretches(water) == MARKED
    return water, connection, life


# --- by example


def test_a_mark_is_set_by_the_claim_after_the_one_it_stands_for() -> None:
    water = low_water()
    life = water.begin(Connection(), "names")
    assert stretches(water) == WHOLE
    took(water, life, 5, 7, xmin=100, xid=101)
    assert stretches(water) == WHOLE
    took(water, life, 8, 9, xmin=101, xid=102)
    assert stretches(water) == MARKED


@pytest.mark.parametrize(("seqs", "xmin"), [((8, 9), 100), ((6, 9), 101), ((), 101)])
def test_a_mark_is_not_set_while_a_lower_number_may_come(seqs: tuple[int, ...], xmin: int) -> None:
    """A transaction of that time is under way; a lower number did come; nothing was taken, so nothing is known."""
    water = low_water()
    life = water.begin(Connection(), "names")
    took(water, life, 5, 7, xmin=100, xid=101)
    took(water, life, *seqs, xmin=xmin, xid=102)
    assert stretches(water) == WHOLE


def test_ranks_have_marks_of_their_own_and_stretches_in_claim_order() -> None:
    water, _, life = marked()
    for low in (20, 30):
        took(water, life, low, low + 1, xmin=200 + low, xid=200 + low, rank=4)
    assert stretches(water) == [
        Stretch(QUEUE, -32768, 0, 4),
        Stretch(QUEUE, 4, 21, 11),
        Stretch(QUEUE, 11, 7, 32767),
    ]


def test_a_queue_without_marks_is_looked_at_whole() -> None:
    water, _, _ = marked()
    assert list(water.stretches(["mail", QUEUE])) == [Stretch("mail", -32768, 0, 32767), *MARKED]


def test_marks_are_forgotten_on_a_new_connection() -> None:
    water, known, _ = marked()
    water.begin(known, "names")
    assert stretches(water) == MARKED
    water.begin(Connection(), "names")
    assert stretches(water) == WHOLE
    water.begin(known, "names")
    assert stretches(water) == WHOLE


def test_marks_are_forgotten_when_other_job_types_are_looked_for() -> None:
    water, known, _ = marked()
    water.begin(known, "other names")
    assert stretches(water) == WHOLE


@pytest.mark.parametrize(("roll", "seconds"), [(0.0, 10.0), (0.5, 15.0), (1.0, 20.0)])
def test_it_is_looked_below_the_marks_after_ten_to_twenty_seconds_once_at_a_time(roll: float, seconds: float) -> None:
    clock = Clock()
    water, _, _ = marked(clock, roll=roll)
    clock.now = seconds - 0.01
    assert water.below() is None
    clock.now = seconds
    below = water.below()
    assert below is not None
    assert below.marks == [(QUEUE, 11, 7)]
    clock.now = seconds + 5
    assert water.below() is None
    water.looked(below, is_empty=True)
    assert water.below() is None
    clock.now = 2 * seconds
    assert water.below() is not None


def test_without_marks_there_is_nothing_to_look_for() -> None:
    clock = Clock()
    water = low_water(clock)
    water.begin(Connection(), "names")
    clock.now = 29
    assert water.below() is None


def test_a_look_that_meets_something_lets_the_marks_go() -> None:
    clock = Clock()
    water, known, _ = marked(clock)
    clock.now = 10
    below = water.below()
    assert below is not None
    water.looked(below, is_empty=False)
    assert stretches(water) == WHOLE
    clock.now = 39
    water.begin(known, "names")  # thirty seconds from the look's end
    clock.now = 40
    assert water.below() is None


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_look_says_nothing_of_marks_that_came_after_it_began(is_empty: bool) -> None:
    clock = Clock()
    water, known, _ = marked(clock)
    clock.now = 10
    below = water.below()
    assert below is not None
    life = water.begin(Connection(), "names")
    took(water, life, 5, 7, xmin=200, xid=201)
    took(water, life, 8, 9, xmin=201, xid=202)
    clock.now = 11
    water.looked(below, is_empty=is_empty)
    assert stretches(water) == MARKED
    clock.now = 39.99
    water.begin(known, "names")
    assert stretches(water) == MARKED
    clock.now = 40
    water.begin(known, "names")
    assert stretches(water) == WHOLE


@pytest.mark.parametrize("looked_at", [None, 10, 29])
def test_marks_are_forgotten_thirty_seconds_after_the_last_look_began(looked_at: float | None) -> None:
    clock = Clock()
    water, known, _ = marked(clock)
    if looked_at is not None:
        clock.now = looked_at
        below = water.below()
        assert below is not None
        clock.now += 0.5
        water.looked(below, is_empty=True)
    clock.now = (looked_at or 0) + 29.99
    water.begin(known, "names")
    assert stretches(water) == MARKED
    clock.now = (looked_at or 0) + 30
    water.begin(known, "names")
    assert stretches(water) == WHOLE


def test_a_claim_begun_before_marks_were_forgotten_teaches_nothing() -> None:
    """It did not look below the old marks, so it cannot confirm a new one."""
    water, _, life = marked()
    water.forget()
    took(water, life, 20, xmin=300, xid=301)
    took(water, life, 21, xmin=302, xid=303)
    assert stretches(water) == WHOLE
