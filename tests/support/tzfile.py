"""Time zone data made for a test: a compiled file with the changes of the clock that it wants, and a place to find it.

`zoneinfo` reads such a file as it reads those of the system; the format is RFC 8536.
"""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

_HEADER = struct.Struct(">4sc15x6l")


def write_zone(folder: Path, name: str, first: timedelta, changes: Sequence[tuple[datetime, timedelta]]) -> None:
    """Write a zone that is `first` ahead of UTC, and from each change on so much; from the last on for ever."""
    offsets = [first, *(offset for _, offset in changes)]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readers of the second version skip the first, which may be empty but for one type.
    empty = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"TST\0"
    whole = _HEADER.pack(b"TZif", b"2", 0, 0, 0, len(changes), len(offsets), 4)
    whole += b"".join(struct.pack(">q", int(at.timestamp())) for at, _ in changes)
    whole += bytes(range(1, len(offsets)))
    whole += b"".join(struct.pack(">lbb", int(offset.total_seconds()), 0, 0) for offset in offsets)
    path.write_bytes(empty + whole + b"TST\0" + f"\n{_for_ever(offsets[-1])}\n".encode())


@contextmanager
def zones_in(folder: Path) -> Iterator[None]:
    """Let zones be looked up here first; what was looked up before is forgotten, as in a process that starts anew."""
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(folder), *before])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        yield
    finally:
        zoneinfo.reset_tzpath(before)
        zoneinfo.ZoneInfo.clear_cache()


def _for_ever(offset: timedelta) -> str:
    """Give the rule after the last change; POSIX counts from the zone to UTC."""
    minutes = -int(offset.total_seconds()) // 60
    sign = "-" if minutes < 0 else ""
    return f"<TST>{sign}{abs(minutes) // 60}:{abs(minutes) % 60:02}"
