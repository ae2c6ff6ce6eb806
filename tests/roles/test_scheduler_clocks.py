"""F31: rules of a zone that change between two lives of a scheduler, and a clock that smears or repeats a second.

What was decided stays decided, by the rules of then; what comes is decided by those of now. The watermark never goes
back, nothing is missing and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from app.jobs.cron import cron_of
from tests.roles.scheduling import MINUTE, NAME, Post, every, fired, scheduling, skipped, to_full_minute
from tests.support.cron_read import expression_of
from tests.support.cron_walk import enumerated, walk
from tests.support.drivers import DriverEnv, driver_kind, driver_url, env
from tests.support.tzfile import write_zone, zones_in

__all__ = ["driver_kind", "driver_url", "env"]

ZONE = "Test/Moving"
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
_HALF_DAYS = 8


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with zones_in(tmp_path):
        yield tmp_path
    cron_of.cache_clear()


def _rules(folder: Path, first: timedelta, *changes: tuple[datetime, timedelta]) -> None:
    """Let the zone have other rules from the next start of a process on."""
    write_zone(folder, ZONE, first, changes)
    ZoneInfo.clear_cache()
    cron_of.cache_clear()


def _due(cron: str, after: datetime, until: datetime) -> list[datetime]:
    """Give what is due by the zone's rules of now, by an enumerator of the tests' own."""
    runs = walk(ZONE, _midnight(after) - 2 * DAY, _midnight(until) + 3 * DAY)
    return [at for at in enumerated(expression_of(cron), runs) if after < at <= until]


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


async def _watermark(post: Post) -> datetime:
    view = await post.store.find(NAME)
    assert view is not None
    mark: datetime = view.watermark
    return mark


async def _live(env: DriverEnv, cron: str, *, half_days: int) -> tuple[list[datetime], datetime]:
    """Let a scheduler live for so long; gives the watermarks it was seen at, and when it ended."""
    seen = []
    async with scheduling(env, every(cron, tz=ZONE, catch_up="all", max_catch_up=100)) as post:
        for _ in range(half_days):
            await env.advance(12 * HOUR)
            await post.until_looked()
            seen.append(await _watermark(post))
    return seen, env.now()


def test_a_zone_that_was_written_is_read_as_it_was_meant(folder: Path) -> None:
    change = datetime(2026, 3, 1, 1, tzinfo=UTC)
    _rules(folder, HOUR, (change, 3 * HOUR), (change + DAY, -90 * MINUTE))
    zone = ZoneInfo(ZONE)
    for at, offset in (
        (change - SECOND, HOUR),
        (change, 3 * HOUR),
        (change + DAY, -90 * MINUTE),
        (change + 9999 * DAY, -90 * MINUTE),
    ):
        assert at.astimezone(zone).utcoffset() == offset


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 1-4 * * *", "0 12 * * MON,WED,FRI"])
@pytest.mark.parametrize(
    "moved", [2 * HOUR, -2 * HOUR, 30 * MINUTE, -10 * HOUR], ids=["later", "earlier", "half an hour", "far"]
)
async def test_rules_that_change_between_two_lives_leave_nothing_out_and_bring_nothing_twice(
    env: DriverEnv, folder: Path, cron: str, moved: timedelta
) -> None:
    begin = await to_full_minute(env)
    _rules(folder, HOUR)
    first, now = await _live(env, cron, half_days=_HALF_DAYS)
    due = _due(cron, begin, now)
    # The change is decreed while nobody runs, and for a day that has begun: it tells of instants that are long decided.
    _rules(folder, HOUR, (_midnight(now) - DAY, HOUR + moved))
    second, until = await _live(env, cron, half_days=_HALF_DAYS)
    due += _due(cron, first[-1], until)
    rows = await Post(env.driver, every(cron, tz=ZONE)).rows()
    assert fired(rows) == due
    assert skipped(rows) == []
    marks = first + second
    assert marks == sorted(marks)
    assert len({row.job_id for row in rows}) == len(rows)


async def test_a_change_that_is_announced_and_called_off_is_as_it_never_was(env: DriverEnv, folder: Path) -> None:
    cron = "30 2 * * *"
    begin = await to_full_minute(env)
    _rules(folder, HOUR)
    first, _ = await _live(env, cron, half_days=4)
    due = _due(cron, begin, env.now())
    _rules(folder, HOUR, (_midnight(env.now()) + 20 * DAY, 3 * HOUR))
    second, _ = await _live(env, cron, half_days=4)
    due += _due(cron, first[-1], env.now())
    _rules(folder, HOUR)
    third, until = await _live(env, cron, half_days=4)
    due += _due(cron, second[-1], until)
    rows = await Post(env.driver, every(cron, tz=ZONE)).rows()
    assert fired(rows) == due == _due(cron, begin, until)
    assert first + second + third == sorted(first + second + third)


async def test_a_day_that_is_smeared_over_a_leap_second_has_all_its_minutes_once(env: DriverEnv) -> None:
    """The clock goes a hundred-thousandth slower for a day; it is never on a whole minute when it is looked at."""
    begin = await to_full_minute(env)
    step = 30 * MINUTE - 30 * MINUTE / 86_400
    async with scheduling(env, every("*/5 * * * *", catch_up="all", max_catch_up=100)) as post:
        marks = []
        for _ in range(48):
            await env.advance(step)
            await post.until_looked()
            marks.append(await _watermark(post))
        rows = await post.rows()
    runs = walk("UTC", begin, env.now())
    assert fired(rows) == [at for at in enumerated(expression_of("*/5 * * * *"), runs) if begin < at <= env.now()]
    assert skipped(rows) == []
    assert marks == sorted(marks)


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
async def test_a_leap_second_that_is_a_second_twice_brings_its_minute_once(env: DriverEnv, catch_up: str) -> None:
    begin = await to_full_minute(env)
    async with scheduling(env, every(catch_up=catch_up)) as post:
        marks = []
        for number in range(1, 5):
            await env.advance(30 * SECOND + SECOND / 2)  # half a second behind the minute
            await post.until_decided(begin + number * MINUTE)
            marks.append(await _watermark(post))
            await env.advance(-SECOND)  # once more the last second of the minute before
            await post.until_looked()
            marks.append(await _watermark(post))
            await env.advance(30 * SECOND + SECOND / 2)
            await post.until_looked()
        rows = await post.rows()
    assert fired(rows) == [begin + number * MINUTE for number in range(1, 5)]
    assert skipped(rows) == []
    assert marks == sorted(marks)
