"""Where looks for staged rows begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.drivers.postgres.outbox_looks import BEGINNING, MARGIN, WHOLE_EVERY, Look, Looks

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def rows(*seconds: int, taken: int | None = None) -> list[dict[str, Any]]:
    return [{"staged_at": T0 + timedelta(seconds=each), "taken": taken or len(seconds)} for each in seconds]


def test_the_first_look_is_whole_and_later_ones_begin_a_margin_before_it() -> None:
    looks = Looks(Clock())
    first = looks.next()
    assert first == Look(since=BEGINNING, is_whole=True)
    assert not looks.took(first, [], 3, T0)
    assert looks.next() == Look(since=T0 - MARGIN, is_whole=False)


def test_a_look_that_took_all_it_may_is_continued_where_it_ended() -> None:
    looks = Looks(Clock())
    assert looks.took(looks.next(), rows(1, 2, 3), 3, T0)
    assert looks.next().since == T0 + timedelta(seconds=3)
    assert not looks.took(looks.next(), rows(3, 4), 3, T0)
    assert looks.next().since == T0 + timedelta(seconds=3)


def test_a_look_that_was_cut_by_size_may_have_left_more() -> None:
    looks = Looks(Clock())
    assert looks.took(looks.next(), rows(1, taken=2), 3, T0)


def test_every_so_often_a_look_is_whole_again() -> None:
    clock = Clock()
    looks = Looks(clock)
    looks.took(looks.next(), [], 3, T0)
    clock.now = WHOLE_EVERY.total_seconds() - 0.1
    assert not looks.next().is_whole
    clock.now = WHOLE_EVERY.total_seconds()
    assert looks.next().is_whole
    assert not looks.next().is_whole


def test_what_was_put_back_is_looked_for_from_the_front() -> None:
    looks = Looks(Clock())
    looks.took(looks.next(), rows(1, 2, 3), 3, T0)
    looks.forget()
    assert looks.next().is_whole
