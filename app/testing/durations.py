"""Durations as tests write them: `"3d"`, `"90s"`, `"1h30m"`, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from ..domain.errors import RequestInvalid

_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")


def duration_of(text: str | timedelta) -> timedelta:
    """Read a duration.

    Raises:
        RequestInvalid: it cannot be read, or goes backwards.
    """
    if isinstance(text, timedelta):
        found = text
    elif (compact := str(text).replace(" ", "")) and not _PART.sub("", compact):
        found = sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(compact)), timedelta())
    else:
        raise RequestInvalid(
            f"{text!r} is not a duration", fix="write it like '3d', '1h30m', '90s' or '250ms', or pass a timedelta"
        )
    if found < timedelta():
        raise RequestInvalid(f"the clock cannot be moved by {text}", fix="pass zero or more: time only goes forward")
    return found
