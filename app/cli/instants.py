"""Times as people give them on a command line: RFC 3339 with an offset."""

from __future__ import annotations

from datetime import UTC, datetime

from ..domain.errors import RequestInvalid


def instant_of(text: str, option: str) -> datetime:
    """Read a time.

    Raises:
        RequestInvalid: it is none, or names no offset.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise RequestInvalid(f"{text[:64]!r} is no time", fix=f"write {option} 2026-10-25T00:00:00Z") from exc
    if found.utcoffset() is None:
        raise RequestInvalid(f"{text[:64]!r} names no offset", fix=f"write {option} 2026-10-25T00:00:00Z")
    return found.astimezone(UTC)
