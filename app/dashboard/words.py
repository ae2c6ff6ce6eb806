"""How numbers, spans and instants read on a page. Pure; registered as filters of the templates.

A duration has two units at most and is never negative; a count has separators, and a plus where it is capped.
"""

from __future__ import annotations

from datetime import UTC, datetime

_SECOND = 1_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_WHOLE_SECONDS = 10 * _SECOND
_SHORT_DIGITS = 8
_PERCENT_DECIMALS_BELOW = 10


def dur(ms: float | None) -> str:
    """Say how long a number of milliseconds is; nothing for None."""
    if ms is None:
        return ""
    left = max(0, round(ms))
    if left < _SECOND:
        return f"{left} ms"
    if left < _WHOLE_SECONDS:
        return f"{left / _SECOND:.1f} s"
    if left < _MINUTE:
        return f"{left // _SECOND} s"
    for unit, name, smaller, short in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "m"),
        (_MINUTE, "m", _SECOND, "s"),
    ):
        if left >= unit:
            rest = left % unit // smaller
            return f"{left // unit} {name} {rest} {short}" if rest else f"{left // unit} {name}"
    return f"{left} ms"


def ago(at: datetime | None, now: datetime) -> str:
    """Say how long ago an instant was, or in how long it is; a clock that is a little ahead reads "just now"."""
    if at is None:
        return ""
    ms = (now - at).total_seconds() * _SECOND
    if abs(ms) < _SECOND:
        return "just now"
    return f"{dur(ms)} ago" if ms > 0 else f"in {dur(-ms)}"


def since_ms(at: datetime | None, now: datetime) -> float | None:
    """Give the milliseconds since an instant, not below zero."""
    return None if at is None else max(0.0, (now - at).total_seconds() * _SECOND)


def num(value: float | None, *, capped: bool = False) -> str:
    """Give a count with separators."""
    if value is None:
        return ""
    return f"{value:,}{'+' if capped else ''}"


def percent(part: float, whole: float) -> str:
    """Give a share, with two decimals below ten percent."""
    if not whole:
        return ""
    share = 100 * part / whole
    return f"{share:.2f} %" if share < _PERCENT_DECIMALS_BELOW else f"{share:.0f} %"


def short(identifier: object) -> str:
    """Give the end of an id: it begins with the time, so the beginnings are alike."""
    return f"…{str(identifier)[-_SHORT_DIGITS:]}"


def stamp(at: datetime | None) -> str:
    """Give an instant in full, with its zone."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def clock(at: datetime | None, *, ms: bool = False) -> str:
    """Give the time of day."""
    if at is None:
        return ""
    return at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3] if ms else at.astimezone(UTC).strftime("%H:%M:%S")


def phase(name: str) -> str:
    """Give a drain's phase as it is said."""
    return "in-flight" if name == "inflight" else name


def iso(at: datetime | None) -> str:
    """Give an instant for programs."""
    return "" if at is None else at.astimezone(UTC).isoformat()


def size(text: str | None) -> str:
    """Say how large a text is."""
    count = len((text or "").encode())
    return f"{count:,} bytes" if count < 10_000 else f"{count / 1_024:,.0f} KB"  # noqa: PLR2004 - when KB read better


def sentence(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]
