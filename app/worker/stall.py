"""Watches the worker's event loop from another thread: how late it is, where it hangs, and when it is beyond help.

The loop beats; the heartbeat thread looks. Only time in which the looking thread itself ran counts, so that a process
that was suspended and woke up is not taken for one that hangs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable

from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry

BEAT_SECONDS = 0.1
SAID_FROM_SECONDS = 1.0  # shorter lags are measured only
_WORST_OF = 240  # looks whose worst lag is shown: about a minute


class StallWatch:
    """The watch over the loop it is made on.

    `limit_seconds` without progress is the end; `on_blocked` hears the name of the task that holds the loop.
    """

    def __init__(
        self,
        *,
        limit_seconds: float,
        telemetry: Telemetry,
        monotonic: Callable[[], float],
        on_blocked: Callable[[str], None],
    ) -> None:
        self._limit = limit_seconds
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._on_blocked = on_blocked
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._beats = 0
        self._seen = 0
        self._stalled = 0.0
        self._looked: float | None = None
        self._is_said = False
        self._worst: deque[float] = deque(maxlen=_WORST_OF)

    async def beat(self, leaving: asyncio.Event) -> None:
        """Show progress until leaving is over; runs on the watched loop."""
        while not leaving.is_set():
            self._beats += 1
            await first_of(leaving, within=BEAT_SECONDS)

    def look(self) -> bool:
        """Look once, from another thread; False once the loop is beyond help (said already)."""
        now = self._monotonic()
        passed = 0.0 if self._looked is None else min(now - self._looked, 1.0)
        self._looked = now
        if self._beats != self._seen:
            self._moves()
        else:
            self._stalled += passed
        self._worst.append(max(self._stalled - BEAT_SECONDS, 0.0))
        self._telemetry.loop_lag(max(self._worst))
        if self._stalled >= min(SAID_FROM_SECONDS, self._limit) and not self._is_said:
            self._is_said = True
            self._say(is_over=False)
        if self._stalled >= self._limit:
            self._say(is_over=False)
            return False
        return True

    def _moves(self) -> None:
        if self._is_said:
            self._say(is_over=True)
        self._seen = self._beats
        self._stalled = 0.0
        self._is_said = False

    def _say(self, *, is_over: bool) -> None:
        holder = None if is_over else self._holder()
        if holder is not None:
            self._on_blocked(holder)
        stack = None if is_over else self._stack()
        self._telemetry.worker_loop_blocked(self._stalled, holder=holder, stack=stack, is_over=is_over)

    def _stack(self) -> str | None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to another thread's stack
        return None if frame is None else "".join(traceback.format_stack(frame, limit=20))

    def _holder(self) -> str | None:
        """Name the task that holds the loop; a body's own task is named after its job."""
        try:
            task = asyncio.current_task(self._loop)
        except RuntimeError:
            return None
        return None if task is None else task.get_name()
