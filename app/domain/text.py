"""Text that can be stored: what PostgreSQL refuses is replaced, what is too long is cut, and both are said.

Errors and tracebacks are written by code we do not know; they go through `storable` so that one odd message cannot
fail a settle. Names that come in from outside are refused instead (`is_printable`, `is_traceparent`). Also owns how
ids and places in a JSON text are written. Called by worker, admission and the HTTP edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal
from uuid import UUID

REPLACEMENT = "\ufffd"
CUT_MARK = "…[cut]…"
MAX_KEY_CHARS = 255
MAX_TAG_CHARS = 64

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

Keep = Literal["start", "end"]


def storable(text: str, max_bytes: int, *, keep: Keep = "start") -> tuple[str, bool]:
    """Give the text as it can be stored in at most `max_bytes` of UTF-8, and whether it was changed.

    NUL and lone surrogates become U+FFFD. A text that is too long is cut between code points, with a mark (within
    `max_bytes`) in the cut's place; `keep` says which side stays: the start of a message, the end of a traceback.
    """
    # A character takes at least one byte: nothing further off can survive the cut, so a gigabyte is never copied.
    window = text
    if len(text) > max_bytes:
        window = text[:max_bytes] if keep == "start" else text[len(text) - max_bytes :]
    clean = window.replace("\0", REPLACEMENT)
    try:
        raw = clean.encode()
    except UnicodeEncodeError:
        clean = "".join(REPLACEMENT if "\ud800" <= char <= "\udfff" else char for char in clean)
        raw = clean.encode()
    if len(raw) <= max_bytes and len(window) == len(text):
        return clean, clean != text
    return _cut(raw, max_bytes, keep), True


def _cut(raw: bytes, max_bytes: int, keep: Keep) -> str:
    mark = CUT_MARK.encode()
    room = max_bytes - len(mark)
    if room <= 0:
        return raw[:max_bytes].decode(errors="ignore")
    if keep == "start":
        return raw[:room].decode(errors="ignore") + CUT_MARK
    return CUT_MARK + raw[-room:].decode(errors="ignore")


def is_printable(text: str, max_chars: int = MAX_KEY_CHARS) -> bool:
    """Say whether a text is 1 to `max_chars` printable characters and not blank.

    Printable is Unicode's word: no control or format characters, no separators but the space, no surrogates.
    """
    return 0 < len(text) <= max_chars and text.isprintable() and not text.isspace()


def printable_key(key: str) -> str | None:
    """Say what is wrong with an idempotency key, or None when it may be used."""
    if not key or key.isspace():
        return "it is blank"
    if len(key) > MAX_KEY_CHARS:
        return f"it has {len(key)} characters; the limit is {MAX_KEY_CHARS}"
    if not key.isprintable():
        return "it holds a character that is not printable"
    return None


def is_traceparent(text: str) -> bool:
    """Say whether a text is a W3C `traceparent`. A header that is not one starts no trace, as the standard asks."""
    return _TRACEPARENT.fullmatch(text) is not None


def read_uuid(text: str) -> UUID | None:
    """Give the UUID of its one canonical spelling, None for any other text."""
    return UUID(text) if _UUID.fullmatch(text) else None


def json_pointer(parts: Iterable[object]) -> str:
    """Give the RFC 6901 pointer to a place in a JSON text, from the keys and indexes that lead there."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
