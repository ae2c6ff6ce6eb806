"""What any worker does for the whole store: promote and wake what is due, take over, expire, release, count.

No leader: every verb is safe to run anywhere at any time. One look says what there is to do and when the next delayed
job is due; the sweeps run only when it found something. After a look or sweep of its own that failed, the reaper waits
one lease from the next that did not, because a database outage is not a crash: workers get that long to come back by
themselves. What an answer that comes late says about the store is the lease's to judge, which is renewed all the time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from ..domain.errors import OutlastError, StoreBusy
from ..domain.job import JobId
from ..domain.snapshot import Due, Expired, Reaped, Stats
from ..domain.state import TERMINAL
from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry
from .options import WorkerOptions

T = TypeVar("T")

# Looks for others' jobs are at least this far apart: how late one can become ready that another process delayed.
PROMOTE_SECONDS = 1.0
_PROMOTE, _WAKE = "promote", "wake"
_BATCH = 1000
_LONGEST_REST_SECONDS = 10.0  # the floor under wake-ups that can be lost
# Every live job is counted, at about a millisecond for so many: a store with more of them is counted less often.
_COUNTED_EACH_TIME = 10_000
_LONGEST_COUNT = timedelta(seconds=60)
_SOONEST_SECONDS = 0.005  # due rows are looked for this much after they are due, not before


class Maintenance:
    """The sweeps of one life of a worker. `on_ready` hears that jobs became ready; `may_reap` is asked each time.

    `on_bulk` hears that a look has found bulk operations, `on_tell` ends that are to be told, `on_due` what each look
    has found.
    """

    def __init__(
        self,
        *,
        driver: JobDriver,
        options: WorkerOptions,
        telemetry: Telemetry,
        leaving: asyncio.Event,
        on_ready: Callable[[], None],
        on_due: Callable[[Due], None],
        may_reap: Callable[[], bool],
        roll: Callable[[], float],
        monotonic: Callable[[], float],
        poll_waits: timedelta,
        on_bulk: Callable[[], None] = lambda: None,
        on_tell: Callable[[], None] = lambda: None,
    ) -> None:
        self._driver = driver
        self._options = options
        self._telemetry = telemetry
        self._leaving = leaving
        self._on_ready = on_ready
        self._on_due = on_due
        self._may_reap = may_reap
        self._roll = roll
        self._monotonic = monotonic
        self._on_bulk = on_bulk
        self._on_tell = on_tell
        self._poll_waits_seconds = poll_waits.total_seconds()
        self._due: list[tuple[float, str]] = []  # by instant, and the verb that has work then
        self._look_changed = asyncio.Event()
        self._looked_at = self._look_at = monotonic()
        self._is_listening = False
        self._found: Due | None = None
        self._has_found = asyncio.Event()
        self._reap_from = 0.0
        self.is_away = False  # at the last call, and nobody knows of its return
        self._resume_at: float | None = None  # when the next pause of a queue is over

    def due_in(self, delay: timedelta) -> None:
        """Look again when a job of this worker's becomes due, if that is sooner than the next look."""
        self._due_in(delay, _PROMOTE)

    def wakes_in(self, delay: timedelta) -> None:
        """Do the same when a wait of a run that this worker suspended is due."""
        self._due_in(delay, _WAKE)

    def _due_in(self, delay: timedelta, verb: str) -> None:
        if delay < self._options.sweep:
            heapq.heappush(self._due, (self._monotonic() + delay.total_seconds() + _SOONEST_SECONDS, verb))
            self._look_changed.set()

    def delayed(self) -> None:
        """Look soon: some process delayed a job, perhaps for less than the time to the next look."""
        self._look_by(self._looked_at + self._spacing)

    def listens(self, *, is_listening: bool) -> None:
        """Say whether wake-ups arrive; without them nobody tells of delayed jobs, and the looks are closer."""
        self._is_listening = is_listening
        self.delayed()

    def outage(self) -> None:
        """Let the reaper wait one lease from now: until now the store was away."""
        self._reap_from = self._monotonic() + self._options.lease.total_seconds()

    async def promote(self) -> None:
        """Look for what is due, make due jobs ready and end due waits, those of its own at once, until leaving."""
        while not self._leaving.is_set():
            due = self._own_due()
            if self._look_at <= self._monotonic():  # also while something of one's own is always due
                due |= await self._finds_due()
            if _PROMOTE in due:
                await self._while_full(self._promote)
            if _WAKE in due:
                await self._while_full(self._wake)
            await self._until_look()

    async def sweep(self) -> None:
        """Expire and reap until leaving, when a look found any and then as long as there is a whole batch of it."""
        while not self._leaving.is_set():
            await first_of(self._leaving, self._has_found)
            self._has_found.clear()
            found, self._found = self._found, None
            if found is not None and found.must_expire:
                await self._while_full(self._expire)
            if found is not None and found.must_reap:
                await self._while_full(self._reap)
            if found is not None and (found.must_free or found.must_reap):
                await self._while_full(self._free)
            if found is not None and found.must_release:
                await self._while_full(self._release)
            if found is not None and found.must_line_up:
                await self._while_full(self._line_up)

    async def sweep_waits(self) -> None:
        """Look at all calls of suspended jobs, now and then, for ends that nobody told them of, until leaving."""
        while not self._leaving.is_set():
            await self._rest(self._poll_waits_seconds)
            after: JobId | None = None
            while not self._leaving.is_set():
                swept = await self._try("sweep_waits", self._driver.sweep_waits(after, _BATCH))
                if swept is not None and swept.woken:
                    self._on_ready()
                if swept is None or swept.next_after is None:
                    break
                after = swept.next_after
                await asyncio.sleep(0)  # a store in this process answers without giving way

    async def _finds_due(self) -> set[str]:
        """Look: hand the sweep its part, set the time of the next look; gives the verbs that have work now."""
        began = self._looked_at = self._monotonic()
        self._look_at = began + self._rest_seconds
        due = await self._try("due", self._driver.due())
        # Whatever made the next look sooner meanwhile stands: this look may not have seen what it spoke of.
        now = self._looked_at = self._monotonic()
        self._look_at += now - began
        if due is None:
            return set()
        self._on_due(due)
        if due.must_bulk:
            self._on_bulk()
        if due.must_carry:
            self._on_tell()
        if due.must_expire or due.must_reap or due.must_release or due.must_free or due.must_line_up:
            self._found = due
            self._has_found.set()
        if due.resume_in is not None:
            self._look_by(now + due.resume_in.total_seconds() + _SOONEST_SECONDS)
        if due.has_resumed:
            self._on_ready()
        verbs = set[str]()
        for verb, wait in ((_PROMOTE, due.promote_in), (_WAKE, due.wake_in)):
            if wait is not None:
                self._look_by(now + max(wait.total_seconds() + _SOONEST_SECONDS, self._spacing))
                if wait <= timedelta():
                    verbs.add(verb)
        return verbs

    @property
    def _rest_seconds(self) -> float:
        """Give the time between looks when nothing is delayed; jittered, so that a fleet does not look at once."""
        longest = _LONGEST_REST_SECONDS if self._is_listening else PROMOTE_SECONDS
        return min(self._options.sweep.total_seconds(), longest) * (1 - self._roll() / 4)

    @property
    def _spacing(self) -> float:
        return min(self._options.sweep.total_seconds(), PROMOTE_SECONDS) * (1 - self._roll() / 4)

    async def _promote(self) -> int:
        count = await self._try("promote", self._driver.promote(_BATCH)) or 0
        if count:
            self._on_ready()
        return count

    async def _wake(self) -> int:
        count = await self._try("wake", self._driver.wake(_BATCH)) or 0
        if count:
            self._on_ready()
        return count

    async def _release(self) -> int:
        count = await self._try("release_due", self._driver.release_due(_BATCH)) or 0
        if count:
            self._on_ready()
        return count

    async def _free(self) -> int:
        count = await self._try("sweep_slots", self._driver.sweep_slots(_BATCH)) or 0
        if count:
            self._on_ready()
        return count

    async def _line_up(self) -> int:
        count = await self._try("line_up", self._driver.line_up(_BATCH)) or 0
        if count:
            self._on_ready()
        return count

    async def _while_full(self, once: Callable[[], Awaitable[int]]) -> None:
        while await once() >= _BATCH:
            if self._leaving.is_set():
                return
            await asyncio.sleep(0)  # a store in this process answers without giving way

    async def _expire(self) -> int:
        expired: tuple[Expired, ...] = await self._try("expire", self._driver.expire(_BATCH)) or ()
        self._telemetry.jobs_expired(expired)
        return len(expired)

    async def _reap(self) -> int:
        if not self._may_reap() or self._monotonic() < self._reap_from:
            return 0
        reaped: tuple[Reaped, ...] = await self._try("reap", self._driver.reap(_BATCH)) or ()
        self._telemetry.claims_taken_over(reaped)
        if reaped:
            self._on_ready()
        return len(reaped)

    async def count(self) -> None:
        """Refresh the gauges of the store until leaving."""
        every = self._options.stats_every
        while not self._leaving.is_set():
            pause = every
            try:
                stats = await self._driver.stats()
                self._telemetry.store_counted(stats)
                pause = until_count(stats, every)
            except Exception as error:  # noqa: BLE001 - said; counting may be slow on a large store and proves nothing
                self._telemetry.store_call_failed("stats", error)
            await self._rest(pause.total_seconds())

    async def _try(self, verb: str, call: Awaitable[T]) -> T | None:
        """Make one call; when the store could not be reached, the reaper waits from when it can be again.

        A store that answered that others are in the way was there all along.
        """
        try:
            answer = await call
        except Exception as error:  # noqa: BLE001 - said, and done again next time
            self._telemetry.store_call_failed(verb, error)
            if isinstance(error, OutlastError) and error.retryable and not isinstance(error, StoreBusy):
                self.is_away = True
                self.outage()
            return None
        if self.is_away:
            self.is_away = False
            self.outage()
        return answer

    async def _rest(self, seconds: float) -> None:
        await first_of(self._leaving, within=seconds * (1 - self._roll() / 4))

    def _look_by(self, at: float) -> None:
        if at < self._look_at:
            self._look_at = at
            self._look_changed.set()

    async def _until_look(self) -> None:
        """Wait for the next look, or for the instant a job of this worker's is due."""
        while not self._leaving.is_set():
            self._look_changed.clear()
            until = min(self._look_at, self._due[0][0]) if self._due else self._look_at
            now = self._monotonic()
            if until <= now:
                return
            await first_of(self._leaving, self._look_changed, within=until - now)

    def _own_due(self) -> set[str]:
        """Give the verbs that have work for jobs of this worker's that are due, and forget those."""
        now, verbs = self._monotonic(), set[str]()
        while self._due and self._due[0][0] <= now:
            verbs.add(heapq.heappop(self._due)[1])
        return verbs


def until_count(stats: Stats, every: timedelta) -> timedelta:
    """Give how long a count is good for: also beside many sleepers an idle worker costs hardly anything."""
    live = sum(count for state, count in stats.by_state.items() if state not in TERMINAL)
    return max(every, min(every * (live / _COUNTED_EACH_TIME), _LONGEST_COUNT))
