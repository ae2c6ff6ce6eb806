"""The places a worker has: how many jobs run, how many of each queue, and how many more could start now.

A place is taken from the claim until the body has ended, also when its attempt was closed before. Used on the
worker's loop alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from ..drivers.protocol import QueueShare
from .options import WorkerOptions


class Places:
    """Counts places, in all (`taken`) and by queue. `on_freed` hears of every place given back."""

    def __init__(self, options: WorkerOptions, *, on_freed: Callable[[], None]) -> None:
        self._on_freed = on_freed
        self._all = options.concurrency
        self._limits = {share.queue: share.limit or self._all for share in options.queues}
        self._taken = dict.fromkeys(self._limits, 0)
        self.taken = 0
        self.is_empty = asyncio.Event()
        self.is_empty.set()

    def room(self, freed: Sequence[str] = ()) -> int:
        """Give how many jobs could start now, or will once a place in each of the queues `freed` is given back."""
        return max(self._all - self.taken + len(freed), 0)

    def shares(self, freed: Sequence[str] = ()) -> tuple[QueueShare, ...]:
        """Give the queues with room, and how much each has; `freed` as for `room`."""
        room, back = self.room(freed), Counter(freed)
        free = {queue: min(limit - self._taken[queue] + back[queue], room) for queue, limit in self._limits.items()}
        return tuple(QueueShare(queue=queue, room=count) for queue, count in free.items() if count > 0)

    def take(self, queue: str) -> None:
        """Take a place."""
        self._taken[queue] = self._taken.get(queue, 0) + 1
        self.taken += 1
        self.is_empty.clear()

    def give(self, queue: str) -> None:
        """Give a place back."""
        self._taken[queue] -= 1
        self.taken -= 1
        if self.taken == 0:
            self.is_empty.set()
        self._on_freed()
