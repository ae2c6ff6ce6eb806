"""Hears the signals of a process that somebody else's server runs, such as plain `uvicorn`.

The server keeps its say: it is called right after. Without this, nothing in such a process would know that it leaves
before its last request has ended. Called by the composition root.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_LEAVE = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def overheard(hear: Callable[[str], object]) -> Iterator[None]:
    """Call `hear` with the name of each SIGTERM and SIGINT while the context is open; it runs in a signal handler.

    Outside the main thread, which is the only one that may, nothing is heard.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owners = {number: signal.getsignal(number) for number in _LEAVE}

    def on_signal(number: int, frame: FrameType | None) -> None:
        hear(signal.Signals(number).name)
        owner = owners[signal.Signals(number)]
        if callable(owner):
            owner(number, frame)
        elif owner is signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in _LEAVE:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, owner in owners.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, owner)


def ask_to_leave() -> None:
    """Tell this process's own server to leave, in the one way every server knows."""
    os.kill(os.getpid(), signal.SIGTERM)
