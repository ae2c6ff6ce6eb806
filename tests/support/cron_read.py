"""Reads a cron expression for the enumerator of `cron_walk`, without anything of the product or of its library.

It knows what our schedules are written in, and refuses the rest: what it does not know it must not guess.
"""

from __future__ import annotations

from tests.support.cron_walk import DAYS, MONTHS, Expression

_FIELDS = 5


def expression_of(text: str) -> Expression:
    """Read five fields."""
    fields = text.upper().split()
    assert len(fields) == _FIELDS, text
    minute, hour, day, month, weekday = fields
    days, last_day = (frozenset[int](), True) if day == "L" else (_values(day, 1, 31), False)
    nth = None
    if "#" in weekday:
        name, _, number = weekday.partition("#")
        nth = (_value(name, DAYS, 0) % 7, int(number))
    weekdays = frozenset[int]() if nth else frozenset(each % 7 for each in _values(weekday, 0, 7, DAYS))
    months = _values(month, 1, 12, MONTHS)
    return Expression(text, _values(minute, 0, 59), _values(hour, 0, 23), days, months, weekdays, last_day, nth)


def _values(field: str, low: int, high: int, names: list[str] | None = None) -> frozenset[int]:
    found = set[int]()
    for part in field.split(","):
        body, slash, step = part.partition("/")
        first, dash, last = body.partition("-")
        if body == "*":
            begin, end = low, high
        else:
            begin = _value(first, names, low)
            end = _value(last, names, low) if dash else high if slash else begin
        assert low <= begin <= end <= high, field
        found.update(range(begin, end + 1, int(step) if slash else 1))
    return frozenset(found)


def _value(text: str, names: list[str] | None, low: int) -> int:
    """Give a number, or the place of a name; names begin with the lowest number."""
    return names.index(text) + low if names is not None and text in names else int(text)
