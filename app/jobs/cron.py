"""Cron rules: five fields in an IANA zone, and the instants at which they hold.

Fields are read by cronsim, and mean what they mean to Debian's cron; so do clock changes. A rule whose minute and hour
both do not begin with `*` names times of the day: one that the clock skips is due at the first instant after the gap,
one that comes twice is due the first time. Any other rule is an interval, and holds in every minute that reads so.
The walk is our own: cronsim's misses minutes after a change of half an hour. Called by schedules, control and the
scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ..domain.errors import ScheduleInvalid

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LONGEST_EXPRESSION = 255
_FIELDS = 5
_EXAMPLE = "write five fields, minute hour day month weekday, such as '30 9 * * MON-FRI'"
_ZONE = "name a zone of the IANA database, such as 'Europe/Berlin' or 'UTC'"
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
# The widest offsets of a zone from UTC, with room.
_WIDEST = timedelta(hours=16)
# Leap days that fall on one weekday are up to 40 years apart.
_FARTHEST_YEARS = 50
# The ends of the calendar are kept clear: a zone's offset must not lead beyond them.
_FIRST_INSTANT = datetime(1900, 1, 1, tzinfo=UTC)
_LAST_INSTANT = datetime(9998, 1, 1, tzinfo=UTC)
_TRIED_FROM = datetime(2024, 1, 1, tzinfo=UTC)
_RANGE_OF_ONE = re.compile(r"\b(\w+)-\1/[1-9]\d*\b")
_FIRST_WINDOW = timedelta(hours=1)


class Cron:
    """One rule. Two of the same expression and zone are equal."""

    def __init__(self, expression: str, tz: str) -> None:
        """Read a rule.

        Raises:
            ScheduleInvalid: the expression cannot be read or never holds, or there is no such zone.
        """
        self.tz = tz
        self.zone = zone_of(tz)
        self.expression = " ".join(_five_fields(expression))
        self._rule = _read(self.expression)
        minute, hour = self.expression.split()[:2]
        self.is_interval = minute.startswith("*") or hour.startswith("*")
        self._minutes, self._hours = sorted(self._rule.minutes), sorted(self._rule.hours)
        if next(self.after(_TRIED_FROM), None) is None:
            raise ScheduleInvalid(f"{self.expression!r} never comes", fix="name a day that the months named have")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cron) and (self.expression, self.tz) == (other.expression, other.tz)

    def __hash__(self) -> int:
        return hash((self.expression, self.tz))

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Give the instants after one, ascending, in UTC, on whole minutes; from 1900 on, and up to 50 years ahead."""
        last = max(instant, _FIRST_INSTANT).astimezone(UTC)
        if last >= _LAST_INSTANT:
            return
        for day in self._days(last.astimezone(self.zone).date() - _DAY):
            for at in self._of_interval(day) if self.is_interval else self._of_times(day):
                if at > last:
                    last = at
                    yield at

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Give the last instants after one and up to another, ascending, at most `most` of them."""
        window, found = _FIRST_WINDOW, list[datetime]()
        while after < until:
            start = max(after, until - window)
            found = []
            for at in self.after(start):
                if at > until:
                    break
                found.append(at)
            if start == after or len(found) >= most:
                break
            window *= 4
        return found[-most:]

    def next(self, after: datetime, count: int) -> list[datetime]:
        """Give the next instants after one."""
        return list(islice(self.after(after), count))

    def reads(self, wall: datetime) -> bool:
        """Say whether a time of the wall is one that the rule names."""
        return wall.hour in self._rule.hours and wall.minute in self._rule.minutes

    def explain(self) -> str:
        """Say in plain English when the rule holds."""
        try:
            return self._rule.explain()
        except Exception:  # noqa: BLE001 - the fields are fit, only their wording is not known
            return f"At the times of {self.expression}"

    def _days(self, start: date) -> Iterator[date]:
        """Give the days on which the rule holds, from one on."""
        day = start
        while day.year <= min(start.year + _FARTHEST_YEARS, _LAST_INSTANT.year):
            if day.month not in self._rule.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._rule.match_day(day):
                yield day
            day += _DAY

    def _of_times(self, day: date) -> Iterator[datetime]:
        for hour in self._hours:
            for minute in self._minutes:
                yield self._first_valid(datetime.combine(day, time(hour, minute)))

    def _first_valid(self, wall: datetime) -> datetime:
        """Give the instant at which a clock on the wall first shows this time, or the first one after it."""
        while True:
            instant = wall.replace(tzinfo=self.zone).astimezone(UTC)
            if instant.astimezone(self.zone).replace(tzinfo=None) == wall:
                return instant
            wall += _MINUTE

    def _of_interval(self, day: date) -> Iterator[datetime]:
        begin = datetime.combine(day, time(), tzinfo=self.zone)
        offset = begin.utcoffset()
        assert offset is not None  # noqa: S101 - every zone of the database has one
        if offset == datetime.combine(day + _DAY, time(), tzinfo=self.zone).utcoffset():
            midnight = datetime.combine(day, time(), tzinfo=UTC) - offset
            for hour in self._hours:
                for minute in self._minutes:
                    yield midnight + timedelta(hours=hour, minutes=minute)
            return
        yield from self._of_changing_day(day)

    def _of_changing_day(self, day: date) -> Iterator[datetime]:
        """Look at every minute of a day on which the clock changes."""
        instant = datetime.combine(day, time(), tzinfo=UTC) - _WIDEST
        end = instant + _DAY + 2 * _WIDEST
        while instant < end:
            wall = instant.astimezone(self.zone)
            if wall.date() == day and wall.hour in self._rule.hours and wall.minute in self._rule.minutes:
                yield instant
            instant += _MINUTE


@lru_cache(maxsize=256)
def cron_of(expression: str, tz: str) -> Cron:
    """Give a rule, read once per process; raises what `Cron` raises."""
    return Cron(expression, tz)


def zone_of(tz: object) -> ZoneInfo:
    """Give a zone by its name.

    Raises:
        ScheduleInvalid: there is none of this name, or it is not one that every machine agrees on.
    """
    if not isinstance(tz, str) or not tz or len(tz) > LONGEST_EXPRESSION or not tz.isascii() or tz in _OWN_ZONES:
        raise ScheduleInvalid(f"{_shown(tz)} is no time zone", fix=_ZONE)
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError) as exc:
        raise ScheduleInvalid(f"there is no time zone {_shown(tz)}", fix=_ZONE) from exc


_OWN_ZONES = frozenset({"localtime", "posixrules"})


def _five_fields(expression: object) -> list[str]:
    if not isinstance(expression, str) or not expression.strip():
        raise ScheduleInvalid(f"{_shown(expression)} is no cron expression", fix=_EXAMPLE)
    if len(expression) > LONGEST_EXPRESSION or not expression.isascii():
        raise ScheduleInvalid(
            f"{_shown(expression)} is longer than {LONGEST_EXPRESSION} ASCII characters", fix="write it shorter"
        )
    macro = expression.strip().lower()
    if macro.startswith("@"):
        if macro not in MACROS:
            raise ScheduleInvalid(
                f"there is no {_shown(expression)}", fix=f"use one of {', '.join(MACROS)}, or five fields"
            )
        return MACROS[macro].split()
    fields = expression.upper().split()
    if len(fields) == _FIELDS + 1:
        raise ScheduleInvalid(
            f"{_shown(expression)} has six fields, and schedules have no seconds",
            fix=f"leave the first field out: '{' '.join(fields[1:])}'",
        )
    if len(fields) != _FIELDS:
        raise ScheduleInvalid(f"{_shown(expression)} has {len(fields)} fields, not five", fix=_EXAMPLE)
    return fields


def _read(expression: str) -> CronSim:
    try:
        # A range of one value with a step is that value to Debian, and to cronsim all from there on.
        return CronSim(_RANGE_OF_ONE.sub(r"\1", expression), _TRIED_FROM)
    except (CronSimError, ValueError, AssertionError) as exc:
        said = str(exc) or "it cannot be read"
        raise ScheduleInvalid(f"{_shown(expression)} is no cron expression: {said}", fix=_EXAMPLE) from exc


def _shown(value: object) -> str:
    return ascii(value)[:80]
