"""A worker's lease as the worker itself judges it, without asking the store.

Judged from the instant before a renewal was sent, on a clock that goes on while the machine sleeps: the store can only
think the lease longer. Once anybody has judged it over it stays over, whatever a renewal under way answers: what ran
under it may have been let go by then. A new registration brings a new lease. Read and written by the worker's loop and
the heartbeat thread.

It also knows how regularly it was renewed, which says whether other workers had their chance to renew: where this one
could not for half a lease, it waits one lease from the renewal that landed before it takes another for gone.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ..domain.job import WorkerId

_LONGEST_WAITS = 3  # leases in a row: a store that answers late all the time is slow, and not away


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
        self._late_since = self._late_at = self._reap_from = -math.inf
        self._lock = threading.Lock()

    def renewed(self, sent: float) -> None:
        """Count from the instant before this renewal was sent; one that is over is not renewed any more."""
        with self._lock:
            if not self._is_over:
                if (now := self._clock()) - self._since >= self.seconds / 2:
                    self._landed_late(now)
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

    @property
    def may_reap(self) -> bool:
        """Say whether a worker whose lease has passed is gone, rather than kept from renewing as this one was.

        A heartbeat is at most a third of a lease and a pause between tries a sixth: what kept another worker from
        renewing for a whole lease kept this one for half of it.
        """
        return self.may_claim and self._clock() >= self._reap_from

    def end(self) -> bool:
        """Let it be over, for good; True for the first caller, who tells what ran under it."""
        with self._lock:
            self._is_over = True
            had_ended, self._has_ended = self._has_ended, True
        return not had_ended

    def _landed_late(self, now: float) -> None:
        """Wait one lease for the others; again after each late renewal, but not for ever."""
        if now - self._late_at >= 2 * self.seconds:
            self._late_since = now
        self._late_at = now
        self._reap_from = min(now, self._late_since + (_LONGEST_WAITS - 1) * self.seconds) + self.seconds

    def _is_passed(self) -> bool:
        """Judge it, for good, with no renewal in between."""
        with self._lock:
            self._is_over = self._is_over or self.age >= self.seconds
            return self._is_over
