"""The shape of an error's message: what one kind of error has in common, without what differs each time. Pure.

Numbers, ids, quoted parts, times and addresses become holes, so that the messages of one fault read alike. Only the
beginning of a message is looked at, in one pass. Used where dead letters are shown in groups.
"""

from __future__ import annotations

import re

# So much of a message is read from a store: one more than is looked at says that there is more.
READ_CHARS = 301
_CUT = "…"

_HOLES = {
    "url": r"\b[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s\"'<>`]+",
    "email": r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+",
    # An apostrophe within a word opens nothing. What is cut off within a quoted part ends it.
    "text": rf"\"[^\"]*(?:\"|{_CUT}\Z)|(?<!\w)'[^']*(?:'(?!\w)|{_CUT}\Z)|`[^`]*(?:`|{_CUT}\Z)|“[^”]*(?:”|{_CUT}\Z)",
    "time": r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?(?!\d)",
    "id": (
        r"\b(?:0x[0-9A-Fa-f]+|[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
        r"|(?=[A-Fa-f]*\d)(?=\d*[A-Fa-f])[0-9A-Fa-f]{8,}|(?=[A-Za-z_]*\d)(?=\d*[A-Za-z_])\w{16,})\b"
    ),
    "n": r"(?<![^\W_])\d+(?:[.,:]\d+)*",
}
_HOLE = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _HOLES.items()))
# The number that a reply of HTTP or SMTP begins with says what kind it is.
_STATUS = re.compile(r"[1-5]\d\d(?=:? [A-Z]| \d\.\d\.\d+ )")


def shape_of(message: str) -> str:
    """Give the beginning of a message with holes, such as `‹n›` and `‹url›`, on one line."""
    text = message if len(message) < READ_CHARS else message[: READ_CHARS - 1] + _CUT
    text = " ".join(text.split())
    status = _STATUS.match(text)
    kept = status[0] if status is not None else ""
    return kept + _HOLE.sub(lambda found: f"‹{found.lastgroup}›", text[len(kept) :])
