"""What is left out of payloads, results and values when they are shown: places a job type names, and telling names.

A path names members from the top: `card.number`; `*` stands for any member or element, `**` for any depth. What is left
out becomes a string that says so; all else stays as it was stored, byte for byte. Pure. Called by `jobs` when a type is
declared, and by `control` before something is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from .errors import SettingsInvalid
from .json_text import element_spans, member_spans
from .sealed import said_as_json

REDACTED = '"[redacted]"'
MOST_PATHS = 100
LONGEST_PATH = 256
_Path: TypeAlias = tuple[str, ...]
_ANY, _DEEP = "*", "**"
# Names of members that hold what opens something, however they are written: `apiKey`, `API-KEY`, `x_api_key`.
_TELLING = re.compile(
    r"(?:password|passwd|passphrase|secret|token|apikey|accesskey|privatekey|authorization|credentials?|cookie)$"
)
_HINT = re.compile(
    r"passw|passphrase|secret|token|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|authorization|credential|cookie",
    re.IGNORECASE,
)
_JOINTS = re.compile(r"[-_ .]")


def checked_paths(paths: object) -> tuple[str, ...]:
    """Give the paths of a job type back. Raises `SETTINGS_INVALID` for what names no place."""
    fix = 'name members from the top, such as redact=["card.number", "items.*.secret", "**.token"]'
    if isinstance(paths, str) or not isinstance(paths, Sequence) or len(paths) > MOST_PATHS:
        raise SettingsInvalid(f"redact={paths!r} cannot work", fix=fix)
    for path in paths:
        parts = path.split(".") if isinstance(path, str) else [""]
        if not all(parts) or parts[-1] == _DEEP or len(path) > LONGEST_PATH:
            raise SettingsInvalid(f"redact={path!r} names no place", fix=fix)
    return tuple(paths)


def redacted(text: str | None, paths: Iterable[str], *, by_name: bool = False) -> str | None:
    """Give a stored JSON text without what the paths name; `by_name` also without members whose names tell of secrets.

    `text` is one that was let in, None stays None. One that lies encrypted, and could not be read here, becomes a
    string that says so.
    """
    if text is not None and (said := said_as_json(text)) is not None:
        return said
    is_named = by_name and text is not None and _HINT.search(text) is not None
    wanted = {tuple(path.split(".")) for path in paths}
    if text is None or not (wanted or is_named):
        return text
    return _without(text, wanted, by_name=is_named)


def is_telling(name: str) -> bool:
    """Say whether a member's name tells of a secret."""
    return _TELLING.search(_JOINTS.sub("", name).lower()) is not None


def _without(text: str, paths: set[_Path], *, by_name: bool) -> str:
    paths = set(_reached(paths))
    if () in paths:
        return REDACTED
    parts, copied = list[str](), 0
    for name, start, end in _spans(text):
        value = text[start:end]
        if by_name and is_telling(name) and value != "null":
            shown = REDACTED
        else:
            shown = _below(value, paths, name, by_name=by_name)
        parts += (text[copied:start], shown)
        copied = end
    return "".join((*parts, text[copied:]))


def _spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Give the places of what a text holds, by name or number; none in one that holds nothing."""
    match text.lstrip(" \t\n\r")[:1]:
        case "{":
            yield from member_spans(text)
        case "[":
            yield from ((str(at), *span) for at, span in enumerate(element_spans(text)))


def _below(value: str, paths: set[_Path], name: str, *, by_name: bool) -> str:
    further = {path if path[0] == _DEEP else path[1:] for path in paths if path[0] in {name, _ANY, _DEEP}}
    return _without(value, further, by_name=by_name) if further or by_name else value


def _reached(paths: Iterable[_Path]) -> Iterator[_Path]:
    """Give the paths, and of one that begins at any depth also what it is at this one."""
    for path in paths:
        deep = next((at for at, part in enumerate(path) if part != _DEEP), len(path))
        yield from (path[at:] for at in range(deep + 1))
