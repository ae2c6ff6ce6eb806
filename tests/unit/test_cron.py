"""Cron rules: what is refused and how, macros, and the documented instants of clock changes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from app.domain.errors import ScheduleInvalid
from app.jobs.cron import MACROS, Cron

UTC_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def local(cron: Cron, after: datetime, count: int) -> list[str]:
    return [at.astimezone(cron.zone).isoformat() for at in cron.next(after, count)]


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 30 2 *", "0 0 31 4,6,9,11 *", "1--100000000 * * * *", "0 0 1--100000000 * *", "60 * * * *", "* 24 * * *",
        "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "", "   ", "* * * *", "* * * * * *", "@reboot",
        "@every 5m", "5/ * * * *", "a b c d e", "* * * * MON#6", "² * * * *", "-1 * * * *", "1,, * * * *",
        "9" * 5000 + " * * * *", "*/" + "9" * 200 + "1 " * 60, "1,2," * 100 + "1 * * * *", None, 7, ["* * * * *"],
    ],
)  # fmt: skip
def test_impossible_and_monstrous_expressions_are_refused_at_once(expression: object) -> None:
    began = time.process_time()
    with pytest.raises(ScheduleInvalid) as refused:
        Cron(expression, "UTC")  # type: ignore[arg-type]  # what callers send
    assert time.process_time() - began < 0.5
    assert refused.value.fix
    assert len(refused.value.cause) < 300


def test_six_fields_are_refused_with_the_five_that_would_do() -> None:
    with pytest.raises(ScheduleInvalid) as refused:
        Cron("0 30 9 * * MON-FRI", "UTC")
    assert refused.value.fix == "leave the first field out: '30 9 * * MON-FRI'"


@pytest.mark.parametrize(
    "zone",
    ["", "Mars/Olympus", "localtime", "posixrules", "../etc/passwd", "/etc/localtime", "Europe", None, 3, "CET\0"],
)
def test_a_zone_that_is_none_is_refused(zone: object) -> None:
    with pytest.raises(ScheduleInvalid) as refused:
        Cron("0 3 * * *", zone)  # type: ignore[arg-type]  # same
    assert "Europe/Berlin" in refused.value.fix


@pytest.mark.parametrize("macro", MACROS)
def test_macros_stand_for_five_fields(macro: str) -> None:
    assert Cron(f" {macro.upper()} ", "UTC") == Cron(MACROS[macro], "UTC")


def test_a_rule_says_in_english_what_it_does() -> None:
    assert Cron("30 9 * * MON-FRI", "Europe/Berlin").explain() == "At 09:30 on Monday through Friday"


def test_leap_days_on_one_weekday_are_found_however_far_they_are() -> None:
    cron = Cron("0 0 * 2 MON#5", "UTC")
    assert cron.next(datetime(2024, 3, 1, tzinfo=UTC), 1) == [datetime(2044, 2, 29, tzinfo=UTC)]
    assert Cron("0 0 29 2 *", "UTC").next(datetime(2096, 3, 1, tzinfo=UTC), 1) == [datetime(2104, 2, 29, tzinfo=UTC)]


def test_new_years_eve_and_the_new_year_are_minutes_like_others() -> None:
    cron = Cron("59 23 31 12 *", "Pacific/Apia")
    assert local(cron, UTC_NOON, 1) == ["2026-12-31T23:59:00+13:00"]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "wanted"),
    [
        # 2 o'clock does not come in New York on 8 March 2026: the job runs at 3, once.
        (
            "0 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
            ["2026-03-08T03:00:00-04:00", "2026-03-09T02:00:00-04:00"],
        ),
        (
            "30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
            ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
        ),
        # Several times in the gap, and the end of it, are one instant.
        (
            "0,30 2,3 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
            ["2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00", "2026-03-09T02:00:00-04:00"],
        ),
        # 1:30 comes twice on 1 November: the job runs the first time.
        (
            "30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
            ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
        ),
        # Half an hour is skipped on Lord Howe Island.
        (
            "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
            ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
        ),
        # Midnight itself is skipped.
        (
            "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00-04:00",
            ["2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"],
        ),
    ],
)  # fmt: skip
def test_a_time_of_day_fires_once_when_the_clock_changes(
    expression: str, zone: str, after: str, wanted: list[str]
) -> None:
    assert local(Cron(expression, zone), datetime.fromisoformat(after), len(wanted)) == wanted


def test_an_interval_goes_on_through_the_repeated_hour() -> None:
    zurich = ZoneInfo("Europe/Zurich")
    begin = datetime(2023, 10, 29, 2, 55, tzinfo=zurich).astimezone(UTC)
    fires = Cron("*/5 * * * *", "Europe/Zurich").next(begin, 13)
    repeated = [at for at in fires if at.astimezone(zurich).fold]
    assert len(repeated) == 12
    assert fires == [begin + n * timedelta(minutes=5) for n in range(1, 14)]
    assert [at.astimezone(zurich).minute for at in Cron("*/7 * * * *", "Europe/Zurich").next(begin, 9)] == [
        56, 0, 7, 14, 21, 28, 35, 42, 49,
    ]  # fmt: skip


def test_no_minute_is_missing_after_a_change_of_half_an_hour() -> None:
    cron = Cron("* 2 * * *", "Australia/Lord_Howe")
    fires = local(cron, datetime(2024, 4, 6, 14, tzinfo=UTC), 60)
    assert (fires[0], fires[-1]) == ("2024-04-07T02:00:00+10:30", "2024-04-07T02:59:00+10:30")


def test_the_newest_of_a_long_gap_are_found_without_walking_it() -> None:
    cron, until = Cron("* * * * *", "Europe/Berlin"), UTC_NOON
    began = time.process_time()
    newest = cron.newest(until - timedelta(days=3650), until, 3)
    assert time.process_time() - began < 0.5
    assert newest == [until - timedelta(minutes=2), until - timedelta(minutes=1), until]
    assert Cron("0 0 1 1 *", "UTC").newest(datetime(2020, 6, 1, tzinfo=UTC), until, 2) == [
        datetime(2025, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
    ]
    assert cron.newest(until, until, 3) == cron.newest(until, until - timedelta(days=1), 3) == []
