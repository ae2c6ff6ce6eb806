"""How long leaving may take: one budget that several causes can bind, of which the earliest deadline wins.

Instants are on the process's monotonic clock. Nothing here stops anything; roles read it and act. A budget that was
never bound has no deadline: that is a stop asked for by code.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ..domain.drain import reserve_seconds
from .tasks import first_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainNotice:
    """Who asked the process to leave, when (monotonic seconds), and how many seconds there are from then."""

    cause: str
    started: float
    seconds: float

    @property
    def reserve(self) -> float:
        """Give what is kept back for cancelling bodies and closing."""
        return reserve_seconds(self.seconds)

    @property
    def deadline(self) -> float:
        """Give the instant by which the process is gone."""
        return self.started + self.seconds

    @property
    def cancel_at(self) -> float:
        """Give the instant at which bodies still running are cancelled."""
        return self.deadline - self.reserve

    @property
    def abandon_at(self) -> float:
        """Give the instant at which what still runs is given up and closing begins."""
        return self.deadline - self.reserve / 2


class DrainBudget:
    """The deadline of one role's leaving. Bound any number of times; a later bind only tightens."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._tightened = asyncio.Event()
        self._limits: list[asyncio.Timeout] = []
        self.first: DrainNotice | None = None
        self.deadline: float | None = None
        self.cancel_at: float | None = None
        self.abandon_at: float | None = None

    @property
    def is_bound(self) -> bool:
        """Say whether there is a deadline."""
        return self.deadline is not None

    def bind(self, notice: DrainNotice) -> None:
        """Bind the budget to a notice; every instant becomes the earlier of what it was and what this one says."""
        self.first = self.first or notice
        self.deadline = _earlier(self.deadline, notice.deadline)
        self.cancel_at = _earlier(self.cancel_at, notice.cancel_at)
        self.abandon_at = _earlier(self.abandon_at, notice.abandon_at)
        self._tightened.set()
        for limit in self._limits:
            self._tighten(limit)

    def remaining(self, instant: float | None) -> float | None:
        """Give the seconds until an instant, never negative; None stays None."""
        return None if instant is None else max(instant - self._monotonic(), 0.0)

    @property
    def since_told(self) -> float | None:
        """Give the seconds since the first notice, None before there is one."""
        return None if self.first is None else max(self._monotonic() - self.first.started, 0.0)

    async def wait(self, done: asyncio.Event, *, until: Callable[[DrainBudget], float | None]) -> bool:
        """Wait for `done`, at most until the instant `until` reads off the budget; a bind that lands meanwhile counts.

        Gives whether it was done. What is done already counts as done, with the budget spent as well.
        """
        while not done.is_set():
            self._tightened.clear()
            left = self.remaining(until(self))
            if left == 0.0:
                return done.is_set()
            await first_of(done, self._tightened, within=left)
        return True

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Cut what is inside after `seconds`, or at the deadline if that is sooner; a bind that lands meanwhile counts.

        Raises:
            TimeoutError: it was cut.
        """
        async with asyncio.timeout(seconds) as limit:
            self._limits.append(limit)
            try:
                self._tighten(limit)
                yield
            finally:
                self._limits.remove(limit)

    def _tighten(self, limit: asyncio.Timeout) -> None:
        left, when = self.remaining(self.deadline), limit.when()
        # One whose time is over, and whose inside is only about to hear of it, takes no other time.
        if left is not None and when is not None and not limit.expired():
            limit.reschedule(min(when, asyncio.get_running_loop().time() + left))


def _earlier(current: float | None, other: float) -> float:
    return other if current is None else min(current, other)
