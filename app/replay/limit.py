"""Bounds what a replay may take, also of code that never gives the loop its turn.

A body that awaits is cancelled by its own loop. One that blocks is met by an alarm, where the system has one and this
is the main thread; elsewhere it blocks.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_SECONDS = 0.5  # to a body that has caught the first alarm


class OverTimeError(BaseException):
    """The code has blocked for longer than a replay may take."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise `OverTimeError` in the main thread once the time has passed, again and again until the context is left."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        if not is_over.is_set():
            raise OverTimeError("the body blocks the event loop")

    is_over = threading.Event()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        try:
            yield
        finally:
            is_over.set()
    finally:  # apart, so that an alarm which rings at the very end cannot keep itself from being taken back
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # somebody else's alarm goes on where it was
            signal.setitimer(signal.ITIMER_REAL, left, interval)
