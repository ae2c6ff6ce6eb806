"""How numbers, spans and instants read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.dashboard.views import points
from app.dashboard.words import ago, clock, dur, num, percent, short, stamp

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        *[(None, ""), (0, "0 ms"), (-5, "0 ms"), (84, "84 ms"), (1_849, "1.8 s"), (41_900, "41 s")],
        *[(60_000, "1 m"), (702_000, "11 m 42 s"), (6_840_000, "1 h 54 m"), (273_600_000, "3 d 4 h")],
    ],
)
def test_a_duration_has_two_units_at_most_and_is_never_negative(ms: float | None, said: str) -> None:
    assert dur(ms) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "just now"), (-0.4, "just now"), (90, "1 m 30 s ago"), (-3_600, "in 1 h")]
)
def test_an_instant_is_told_from_now(seconds: float, said: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_counts_and_shares() -> None:
    assert (num(12_340), num(10_000, capped=True), num(None)) == ("12,340", "10,000+", "")
    assert (percent(142, 10_000), percent(1, 2), percent(1, 0)) == ("1.42 %", "50 %", "")


def test_ids_and_times_in_short_and_in_full() -> None:
    assert short("01a20d87-0a2c-7ae8-b8a0-c0396c8e24a7") == "…6c8e24a7"
    assert stamp(NOW) == "2026-11-30 12:00:00.000 UTC"
    assert (clock(NOW), clock(NOW + timedelta(milliseconds=7), ms=True)) == ("12:00:00", "12:00:00.007")
    assert (clock(None), clock(None, ms=True)) == ("", "")


def test_a_line_stands_on_its_foot_and_fills_its_height() -> None:
    assert points((0, 4, 1)) == "0,18 50,2 100,14"
    assert points((0, 0)) == "0,18 100,18", "nothing is no peak"
    assert points((0.5,)) == "0,10"
