"""A worker's lease as the worker itself judges it, without asking the store.

Judged from the instant before a renewal was sent, on a clock that goes on while the machine sleeps: the store can only
think the lease longer. Once over it stays over; a new registration brings a new lease. Read and written by the
worker's loop and the heartbeat thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..domain.job import WorkerId


def boot_clock() -> Callable[[], float]:
    """Give the monotonic clock that counts suspended time, or the plain one where there is none."""
    clock_id = getattr(time, "CLOCK_BOOTTIME", None)
    if clock_id is None:
        return time.monotonic
    return lambda: time.clock_gettime(clock_id)


class Lease:
    """The lease of one registration. `sent` is the clock's reading before the registration was sent."""

    def __init__(self, *, worker_id: WorkerId, seconds: float, sent: float, clock: Callable[[], float]) -> None:
        self.worker_id = worker_id
        self.seconds = seconds
        self._clock = clock
        self._since = sent
        self._is_over = False
        self._lock = threading.Lock()

    def renewed(self, sent: float) -> None:
        """Count from the instant before this renewal was sent."""
        self._since = max(self._since, sent)

    @property
    def age(self) -> float:
        """Give the seconds since the last renewal that landed was sent."""
        return self._clock() - self._since

    @property
    def is_held(self) -> bool:
        """Say whether the claims under it are still this worker's."""
        return not self._is_over and self.age < self.seconds

    @property
    def may_claim(self) -> bool:
        """Say whether new claims make sense: not after half a lease without a renewal."""
        return not self._is_over and self.age < self.seconds / 2

    def end(self) -> bool:
        """Let it be over, for good; True for the caller that ended it."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
        return not was_over
