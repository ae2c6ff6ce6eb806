"""How far something is, said on stderr: one line that is written over on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

from .report import say

_SELDOM_SECONDS = 5.0
_OFTEN_SECONDS = 0.1
_CLEAR = "\r\x1b[2K"


class Progress:
    """Counts towards a known end, with rate and time left."""

    def __init__(self, total: int, what: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._what = what
        self._monotonic = monotonic
        self._began = self._shown = monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._is_line_open = False

    def show(self, done: int) -> None:
        """Say how many are done, unless that was said only just now."""
        now = self._monotonic()
        if now - self._shown < (_OFTEN_SECONDS if self._is_terminal else _SELDOM_SECONDS):
            return
        self._shown = now
        line = self._line(done, now - self._began)
        if not self._is_terminal:
            say(line)
            return
        self._is_line_open = True
        with suppress(OSError):
            sys.stderr.write(_CLEAR + line)
            sys.stderr.flush()

    def end(self) -> None:
        """Take the line away, for what is said next."""
        if self._is_line_open:
            self._is_line_open = False
            with suppress(OSError):
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()

    def _line(self, done: int, lasted: float) -> str:
        share = f"{done:,} of {self._total:,} {self._what}"
        if not done or lasted <= 0:
            return share
        rate = done / lasted
        return f"{share}, {rate:,.0f}/s, {(self._total - done) / rate:,.0f} s left"
