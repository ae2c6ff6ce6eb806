"""Durations as people write them on a command line: `25s`, `25`, `0.5`, and longer ones, `30d`, `12h`.

Owns these spellings. Used by every command with a flag in seconds or an age.
"""

from __future__ import annotations

import re
from datetime import timedelta

from ..domain.errors import RequestInvalid, SettingsInvalid

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"^([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhdw])$")
_SECONDS = re.compile(r"^([0-9]+(?:\.[0-9]+)?)s?$")


def seconds(text: str) -> float:
    """Give the seconds a flag names.

    Raises:
        SettingsInvalid: it is no number of seconds.
    """
    match = _SECONDS.match(text)
    if match is None:
        raise SettingsInvalid(f"{text!r} is not a number of seconds", fix="write 25s or 25")
    return float(match.group(1))


def duration(text: str) -> timedelta:
    """Give the time an age names; its unit is always said.

    Raises:
        RequestInvalid: it is no such age.
    """
    match = _AGE.match(text)
    if match is None:
        raise RequestInvalid(f"{text!r} is not an age", fix="write 30d, 12h, 15m or 90s")
    return timedelta(**{_UNITS[match.group(2)]: float(match.group(1))})
