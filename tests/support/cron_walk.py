"""An enumerator of cron times that shares nothing with the product: UTC minute by UTC minute, through `zoneinfo`.

A zone's years are walked once and kept as runs, in which wall and UTC go on together. Expressions are made together
with the values they stand for, so nothing is parsed here either.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

ZONES = ("America/New_York", "Europe/London", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca")
MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
DAYS = "SUN MON TUE WED THU FRI SAT".split()
_DAY_MINUTES = 24 * 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WALL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Run:
    """Minutes in which UTC and the wall go on together; both counted from 1970."""

    utc: int
    wall: int
    length: int


@dataclass(frozen=True)
class Expression:
    """A cron expression and what it stands for; `last_day` is the `L` of days, `nth` the `FRI#2` of weekdays."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    last_day: bool = False
    nth: tuple[int, int] | None = None

    @property
    def is_interval(self) -> bool:
        minute, hour = self.text.split()[:2]
        return minute[0] == "*" or hour[0] == "*"

    def holds_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day = day.day in self.days or (self.last_day and day.day == monthrange(day.year, day.month)[1])
        weekday = day.isoweekday() % 7
        by_weekday = weekday in self.weekdays
        if self.nth is not None:
            by_weekday = weekday == self.nth[0] and (day.day - 1) // 7 + 1 == self.nth[1]
        of_month, of_week = self.text.split()[2], self.text.split()[4]
        return by_day and by_weekday if "*" in {of_month[0], of_week[0]} else by_day or by_weekday


def walk(zone: str, start: datetime, end: datetime) -> list[Run]:
    """Walk a zone minute by minute."""
    tz = ZoneInfo(zone)
    runs: list[Run] = []
    instant, utc = start, int((start - _EPOCH) / _MINUTE)
    first_utc = first_wall = 0
    length = -1
    while instant < end:
        wall = int((instant.astimezone(tz).replace(tzinfo=None) - _WALL_EPOCH) / _MINUTE)
        if length < 0 or wall != first_wall + length:
            if length > 0:
                runs.append(Run(first_utc, first_wall, length))
            first_utc, first_wall, length = utc, wall, 0
        length += 1
        instant += _MINUTE
        utc += 1
    runs.append(Run(first_utc, first_wall, length))
    return runs


def enumerated(expression: Expression, runs: list[Run]) -> list[datetime]:
    """Give every time of an expression in a walk, by our own rule for gaps and folds."""
    found = _intervals(expression, runs) if expression.is_interval else _times(expression, runs)
    return [_EPOCH + utc * _MINUTE for utc in sorted(found)]


def _intervals(expression: Expression, runs: list[Run]) -> set[int]:
    """Every minute that reads so, however often it comes."""
    return {run.utc + wall - run.wall for run in runs for wall in _walls(expression, run.wall, run.wall + run.length)}


def _times(expression: Expression, runs: list[Run]) -> set[int]:
    """Each time of the wall once: the first minute that reads so, or, where none does, the first one after it."""
    found, first, last = set(), runs[0].wall, max(run.wall + run.length for run in runs)
    place = 0
    for wall in _walls(expression, first, last):
        while runs[place].wall + runs[place].length <= wall:
            place += 1
        run = runs[place]
        found.add(run.utc + max(0, wall - run.wall))
    return found


def _walls(expression: Expression, start: int, end: int) -> Iterator[int]:
    """Give the minutes of the wall that an expression names, in their order."""
    times = sorted(hour * 60 + minute for hour in expression.hours for minute in expression.minutes)
    for day in range(start // _DAY_MINUTES, (end - 1) // _DAY_MINUTES + 1):
        if expression.holds_on(date(1970, 1, 1) + timedelta(days=day)):
            walls = (day * _DAY_MINUTES + time for time in times)
            yield from (wall for wall in walls if start <= wall < end)


def random_expression(rng: Random) -> Expression:
    """Make an expression of every kind of field, times around clock changes more often than others."""
    minute, minutes = _field(rng, 0, 59, stars=0.25)
    hour, hours = _field(rng, 0, 23, stars=0.25, liked=(0, 1, 2, 3))
    month, months = _field(rng, 1, 12, stars=0.6, names=MONTHS)
    day, days = _field(rng, 1, 31, stars=0.5)
    weekday, weekdays = _field(rng, 0, 6, stars=0.5, names=DAYS)
    last_day, nth = False, None
    odd = rng.random()
    if odd < 0.05:
        day, days, last_day = "L", frozenset(), True
    elif odd < 0.1:
        nth = (rng.randrange(7), rng.randint(1, 5))
        weekday, weekdays = f"{DAYS[nth[0]]}#{nth[1]}", frozenset()
    text = f"{minute} {hour} {day} {month} {weekday}"
    return Expression(text, minutes, hours, days, months, weekdays, last_day, nth)


def _field(
    rng: Random,
    low: int,
    high: int,
    *,
    stars: float,
    liked: tuple[int, ...] = (),
    names: list[str] | None = None,
) -> tuple[str, frozenset[int]]:
    kind = rng.random()
    whole = range(low, high + 1)
    if kind < stars / 2:
        return "*", frozenset(whole)
    if kind < stars:
        step = rng.randint(2, max(2, (high - low) // 2))
        return f"*/{step}", frozenset(whole[::step])
    if kind < stars + (1 - stars) * 0.5:
        value = rng.choice(liked) if liked and rng.random() < 0.6 else rng.randint(low, high)
        if names is not None and rng.random() < 0.5:
            return names[value - low], frozenset({value})
        return str(value), frozenset({value})
    if kind < stars + (1 - stars) * 0.75:
        first = rng.randint(low, high)
        last = rng.randint(first, high)
        step = rng.randint(1, 7)
        values = range(first, last + 1)[::step]
        return (f"{first}-{last}/{step}" if step > 1 else f"{first}-{last}"), frozenset(values)
    chosen = sorted({rng.randint(low, high) for _ in range(rng.randint(2, 4))})
    return ",".join(map(str, chosen)), frozenset(chosen)
