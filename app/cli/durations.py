"""Durations and times as people write them on a command line: `25s`, `0.5`; `30m`, `30d`; `2026-10-25T00:00:00Z`.

Owns these spellings. Used by every command with such a flag.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..domain.errors import RequestInvalid, SettingsInvalid

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"^([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhdw])$")
_SECONDS = re.compile(r"^([0-9]+(?:\.[0-9]+)?)s?$")

_SPAN = re.compile(r"^([0-9]{1,6})([smhd])$")


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


def span(text: str) -> timedelta | None:
    """Give the time that `45s`, `30m`, `2h` or `1d` names, None for anything else."""
    match = _SPAN.match(text)
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})


def overlap_of(text: str) -> timedelta:
    """Give for how long the secret before goes on beside a new one.

    Raises:
        RequestInvalid: it names no time.
    """
    lasts = span(text)
    if lasts is None:
        raise RequestInvalid(f"{text[:64]!r} is no length of time", fix="write --overlap 1h, or --overlap 7d")
    return lasts


def instant(text: str, *, flag: str) -> datetime:
    """Give the time a flag names.

    Raises:
        RequestInvalid: it is none, or says nothing of its offset.
    """
    fix = f"write {flag} 2026-10-25T00:00:00Z"
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise RequestInvalid(f"{text[:64]!r} is no time", fix=fix) from exc
    if found.utcoffset() is None:
        raise RequestInvalid(f"{text[:64]!r} names no offset", fix=fix)
    return found.astimezone(UTC)
