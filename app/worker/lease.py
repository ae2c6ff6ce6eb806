"""A worker's lease as the worker itself judges it, without asking the store.

Judged from the instant before a renewal was sent, on a clock that goes on while the machine sleeps: the store can only
think the lease longer. Once anybody has judged it over it stays over, whatever a renewal under way answers: what ran
under it may have been let go by then. A new registration brings a new lease. Read and written by the worker's loop and
the heartbeat thread.
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
        self._has_ended = False
        self._lock = threading.Lock()

    def renewed(self, sent: float) -> None:
        """Count from the instant before this renewal was sent; one that is over is not renewed any more."""
        with self._lock:
            if not self._is_over:
                self._since = max(self._since, sent)

    @property
    def age(self) -> float:
        """Give the seconds since the last renewal that landed was sent."""
        return self._clock() - self._since

    @property
    def is_held(self) -> bool:
        """Say whether the claims under it are still this worker's; after one False never again."""
        return not self._is_over and (self.age < self.seconds or not self._is_passed())

    @property
    def may_claim(self) -> bool:
        """Say whether new claims make sense: not after half a lease without a renewal."""
        return not self._is_over and self.age < self.seconds / 2

    def end(self) -> bool:
        """Let it be over, for good; True for the first caller, who tells what ran under it."""
        with self._lock:
            self._is_over = True
            had_ended, self._has_ended = self._has_ended, True
        return not had_ended

    def _is_passed(self) -> bool:
        """Judge it, for good, with no renewal in between."""
        with self._lock:
            self._is_over = self._is_over or self.age >= self.seconds
            return self._is_over
