"""The thread that ends a process which does not end by itself, whatever its event loop is doing.

It waits on a pipe, because a write to a pipe is all that a signal handler may safely do: a lock that the interrupted
code holds would be waited for for ever. Owned by `shutdown`.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from functools import partial

_WORDS_SECONDS = 0.5  # a log that blocks does not keep a process alive

_ARMED = b"a"
_END = b"e"
_QUIT = b"q"


def briefly(step: Callable[[], object]) -> None:
    """Do something on the way out that may block for ever, and wait for it a moment only."""
    doer = threading.Thread(target=step, name="outlast.last_words", daemon=True)
    doer.start()
    doer.join(_WORDS_SECONDS)


class Watchdog:
    """Ends the process with a code at an instant, or at once. Arming again only brings the instant forward."""

    def __init__(
        self,
        *,
        last_words: Callable[[int, str], None],
        end: Callable[[int], object] = os._exit,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._last_words = last_words
        self._end = end
        self._monotonic = monotonic
        self._deadline: float | None = None
        self._code = 0
        self._why = ""
        self._reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="outlast.watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def arm(self, deadline: float, *, code: int, why: str) -> None:
        """End the process at `deadline` (monotonic seconds). Safe in a signal handler."""
        if self._deadline is None or deadline < self._deadline:
            self._deadline, self._code, self._why = deadline, code, why
            os.write(self._writing, _ARMED)

    def end_now(self, *, code: int, why: str) -> None:
        """End the process at once. Safe in a signal handler."""
        self._code, self._why = code, why
        os.write(self._writing, _END)

    def stop(self) -> None:
        """Disarm and let the thread end; its pipe is closed."""
        os.write(self._writing, _QUIT)
        self._thread.join()
        os.close(self._writing)
        os.close(self._reading)

    def _watch(self) -> None:
        while (word := self._next_word()) != _QUIT:
            if word != _ARMED:
                self._finish()
                return

    def _next_word(self) -> bytes:
        """Wait for a word or the deadline; nothing said in time means the end."""
        left = None if self._deadline is None else max(self._deadline - self._monotonic(), 0.0)
        readable, _, _ = select.select([self._reading], [], [], left)
        return os.read(self._reading, 1) if readable else b""

    def _finish(self) -> None:
        briefly(partial(self._last_words, self._code, self._why))
        self._end(self._code)
