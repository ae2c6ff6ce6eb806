"""What no process of ours may say, whatever is done to it: bare tracebacks, forgotten tasks, control characters."""

from __future__ import annotations

import re

_BARE = re.compile(
    r"^Traceback \(most recent call last\)|never retrieved|was never awaited|Task was destroyed"
    r"|[\x00-\x08\x0b-\x1f\x7f]"
)


def unfit_lines(text: str) -> list[str]:
    """Give the lines that say what none should; the last one may have been cut by a kill."""
    return [line for line in text.split("\n") if _BARE.search(line)]
