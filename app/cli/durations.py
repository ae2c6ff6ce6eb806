"""Durations as people write them on a command line: `25s`, `25`, `0.5`.

Owns that one spelling. Used by every command with a flag in seconds.
"""

from __future__ import annotations

import re

from ..domain.errors import SettingsInvalid

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
