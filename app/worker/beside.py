"""Where the heartbeat runs: beside the worker's own loop, so that nothing a body does there delays it.

In a process that is a thread with a loop of its own. Whoever simulates a whole fleet on one loop in virtual time, where
no thread may be, runs it another way. Started and ended by `heartbeat`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

Main = Callable[[], Coroutine[Any, Any, None]]
OnEnd = Callable[[BaseException | None], None]


class Beside(Protocol):
    """Something that runs one coroutine beside the loop of its caller, once."""

    def start(self, main: Main, on_end: OnEnd) -> None:
        """Run `main`; `on_end` is its last step, told what ended `main` by itself."""
        ...

    def join(self) -> None:
        """Wait for what is left after `on_end`, which is next to nothing."""
        ...


class OwnThread:
    """A thread with an event loop of its own. It keeps no process from ending."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, main: Main, on_end: OnEnd) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=_run, args=(main, on_end), name="outlast.heartbeat", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        if self._thread is not None:
            self._thread.join()


def _run(main: Main, on_end: OnEnd) -> None:
    error: BaseException | None = None
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(main())
    except BaseException as exc:  # noqa: BLE001 - the thread's last words, for whoever started it
        error = exc
    on_end(error)


_: Callable[[], Beside] = OwnThread
