"""One clock for everything in a test: the store's rows, the worker's durations, the timers of runs.

It stands still until it is moved. Timers go off in the order of their instants, never by themselves. Owned by `env`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ..domain.clock import ManualClock
from ..lifecycle.timers import Timers

# No timer is this short that matters to anybody, and seconds as floats lose that much when they are added up.
_SLACK_SECONDS = 1e-6


class KitTimer:
    """One timer that has been set."""

    def __init__(self, step: Callable[[], object]) -> None:
        self.step: Callable[[], object] | None = step

    def cancel(self) -> None:
        """Let it never go off."""
        self.step = None


class KitTimers:
    """The timers of one worker, on the kit's clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._set: list[tuple[float, int, KitTimer]] = []

    def call_later(self, seconds: float, step: Callable[..., object], *args: object) -> KitTimer:
        """Call `step` once the clock was moved that far; what is due already is called soon."""
        timer = KitTimer(lambda: step(*args))
        if seconds <= 0:
            asyncio.get_running_loop().call_soon(self._go_off, timer)
        else:
            heapq.heappush(self._set, (self._clock.monotonic() + seconds, next(self._order), timer))
        return timer

    def within(self, seconds: float | None) -> asyncio.Timeout:
        """Give a block that is cut once the clock was moved that far."""
        limit = asyncio.timeout(None)
        if seconds is not None:
            self.call_later(seconds, self._cut, limit)
        return limit

    def next_in(self) -> timedelta | None:
        """Give the time to the next timer."""
        while self._set and self._set[0][2].step is None:
            heapq.heappop(self._set)
        return timedelta(seconds=max(self._set[0][0] - self._clock.monotonic(), 0.0)) if self._set else None

    def go_off(self) -> int:
        """Let what is due go off, in order; gives how many did."""
        count, now = 0, self._clock.monotonic() + _SLACK_SECONDS
        while self._set and self._set[0][0] <= now:
            timer = heapq.heappop(self._set)[2]
            count += timer.step is not None
            self._go_off(timer)
        return count

    def _go_off(self, timer: KitTimer) -> None:
        step, timer.step = timer.step, None
        if step is not None:
            step()

    def _cut(self, limit: asyncio.Timeout) -> None:
        with suppress(RuntimeError):  # the block has ended
            limit.reschedule(asyncio.get_running_loop().time())


def start_time() -> datetime:
    """Give the instant a test's clock starts at: a whole second.

    An hour ahead of the machine's: a reaper that waits one lease after the database's start has waited long enough.
    """
    now = datetime.now(UTC)  # noqa: TID251 - the kit's clock has to begin somewhere
    return now.replace(microsecond=0) + timedelta(hours=1)


_: type[Timers] = KitTimers
