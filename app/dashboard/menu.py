"""What the menu says beside its entries: what is paused, held, dead, stuck, or leaves now, as far as that is known.

Counts of jobs are what somebody had counted lately. The few rows of workers and of the outbox are read for all pages
of a process together, at most once in a few seconds; what cannot be read then is not said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from ..control.overview import COUNTED_ENDED
from ..domain.errors import OutlastError
from ..domain.outbox import MOST_COUNTED, OutboxView
from ..domain.snapshot import WorkerView
from ..domain.state import State
from .services import DashboardServices

KEPT_SECONDS = 5.0
# No page waits for its menu longer.
_MOST_SECONDS = 0.5

T = TypeVar("T")


class Mark(NamedTuple):
    """Beside an entry: a state whose colour it has, words, and what only those hear who do not see where it stands."""

    state: str
    words: str
    heard: str = ""


class Menu:
    """Knows what to say beside the entries."""

    def __init__(self, services: DashboardServices, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._monotonic = monotonic
        self._looked_at: float | None = None
        self._workers: tuple[WorkerView, ...] = ()
        self._outbox: OutboxView | None = None

    async def look(self) -> None:
        """Read what is too old; who comes while somebody does, goes on with what is known."""
        now = self._monotonic()
        if self._looked_at is not None and now - self._looked_at <= KEPT_SECONDS:
            return
        self._looked_at = now
        self._workers = await _known(self._services.fleet.workers()) or ()
        self._outbox = await _known(self._services.outbox.view(1))

    def marks(self) -> dict[str, Mark]:
        """Give the marks by the path of their entry; of all tenants, so only for who may see all."""
        found = {**self._of_jobs(), "workers": self._draining(), "outbox": self._stuck()}
        return {path: mark for path, mark in found.items() if mark.words}

    def _of_jobs(self) -> dict[str, Mark]:
        counted = self._services.overview.last
        if counted is None:
            return {}
        paused = sum(queue.paused_at is not None for queue in counted.queues)
        dead, held = (counted.by_state.get(state, 0) for state in (State.DEAD, State.HELD))
        return {
            "queues": Mark("paused", f"{paused} paused" if paused else ""),
            "dead": Mark("", _capped(dead, COUNTED_ENDED), " kept"),
            "jobs": Mark("held", f"{held:,} held" if held else ""),
        }

    def _draining(self) -> Mark:
        leaving = sum(
            worker.drain_phase is not None and worker.closed_at is None and worker.lost_at is None
            for worker in self._workers
        )
        return Mark("draining", f"{leaving:,} draining" if leaving else "")

    def _stuck(self) -> Mark:
        stuck = "" if self._outbox is None else _capped(self._outbox.quarantined, MOST_COUNTED)
        return Mark("held", stuck and f"{stuck} stuck", " until somebody looks")


def _capped(count: int, most: int) -> str:
    return f"{count:,}{'+' if count >= most else ''}" if count else ""


async def _known(reading: Awaitable[T]) -> T | None:
    """Give what was read in time, None where it was not."""
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            return await reading
    except (OutlastError, TimeoutError):
        return None
