"""One JSON text changed by another, as RFC 7396 says, byte for byte where it is not changed.

Numbers are never read: a payload's `1.50` or its 30 digits come out as they went in. No limits here; what comes out is
checked as any payload is. Called where a job is duplicated with an edited payload.
"""

from __future__ import annotations

import json

from .json_text import members


def merged(text: str, patch: str) -> str:
    """Give `text` changed by `patch`: an object's members replace or, being null, remove those of the same name.

    Both are texts that `json_text.decode` has let through. A patch that is no object takes the place of the whole.
    """
    if not _is_object(patch):
        return patch.strip()
    found = members(text) if _is_object(text) else {}
    for name, change in members(patch).items():
        if change == "null":
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name, "null"), change)
    inner = ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in found.items())
    return "{" + inner + "}"


def _is_object(text: str) -> bool:
    return text.lstrip(" \t\r\n").startswith("{")
