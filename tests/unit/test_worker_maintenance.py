"""When a worker looks for what is due: in virtual time, so that every instant is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from app.domain.errors import DriverUnavailable, StoreBusy
from app.domain.job import JobId
from app.domain.snapshot import Due, Stats
from app.domain.state import State
from app.drivers.runs import Swept
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.worker.maintenance import Maintenance, until_count
from app.worker.options import WorkerOptions
from tests.simulation.loop import VirtualLoop

ROUND_TRIP = 0.01
NOTHING = Due(promote_in=None, must_expire=False, must_reap=False)
PAGE_ENDS = JobId(UUID(int=1)), JobId(UUID(int=2))
DEAD = Due(promote_in=None, must_expire=True, must_reap=True)


class Store:
    """A store whose every answer takes a round trip; what happens meanwhile is the test's."""

    def __init__(self, *looks: Due) -> None:
        self.calls: list[tuple[str, float]] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.pages: list[JobId | None] = []
        self.is_away_until = self.is_busy_until = 0.0
        self.round_trip = ROUND_TRIP
        self._looks = iter(looks)

    def times(self, verb: str) -> list[float]:
        """Give when a verb was called."""
        return [at for called, at in self.calls if called == verb]

    async def due(self) -> Due:
        """Look."""
        await self._call("due")
        return next(self._looks, NOTHING)

    async def promote(self, batch: int) -> int:
        """Promote nothing."""
        return await self._call("promote")

    async def wake(self, batch: int) -> int:
        """Wake nothing."""
        return await self._call("wake")

    async def sweep_slots(self, batch: int) -> int:
        """Sweep nothing."""
        return await self._call("sweep_slots")

    async def release_due(self, batch: int) -> int:
        """Release nothing."""
        return await self._call("release_due")

    async def sweep_waits(self, after: JobId | None, batch: int) -> Swept:
        """Find nothing, in three batches."""
        count = await self._call("sweep_waits")
        self.pages.append(after)
        following = {None: PAGE_ENDS[0], PAGE_ENDS[0]: PAGE_ENDS[1]}.get(after)
        return Swept(woken=count, next_after=following)

    async def expire(self, batch: int) -> tuple[()]:
        """Expire nothing."""
        await self._call("expire")
        return ()

    async def reap(self, batch: int) -> tuple[()]:
        """Reap nothing."""
        await self._call("reap")
        return ()

    async def _call(self, verb: str) -> int:
        self.calls.append((verb, asyncio.get_running_loop().time()))
        if asyncio.get_running_loop().time() < self.is_away_until:
            raise DriverUnavailable("the store is away", fix="wait")
        if verb == "reap" and asyncio.get_running_loop().time() < self.is_busy_until:
            raise StoreBusy("a lock is held", fix="repeat the call")
        await asyncio.sleep(self.round_trip / 2)
        self.meanwhile.get(verb, int)()
        await asyncio.sleep(self.round_trip / 2)
        return 0


def maintain(store: Store, *, seconds: float, begin: Callable[[Maintenance], object]) -> None:
    """Run the looks and sweeps of a worker that hears wake-ups, for a while."""

    async def live() -> None:
        leaving = asyncio.Event()
        sut = Maintenance(
            driver=cast("Any", store),
            options=WorkerOptions(sweep=timedelta(minutes=10), lease=timedelta(seconds=30)),
            telemetry=Telemetry(metrics=Metrics()),
            leaving=leaving,
            on_ready=lambda: None,
            on_due=lambda _: None,
            may_reap=lambda: True,
            roll=lambda: 0.0,
            monotonic=asyncio.get_running_loop().time,
            poll_waits=timedelta(seconds=30),
        )
        sut.listens(is_listening=True)
        begin(sut)
        asyncio.get_running_loop().call_later(seconds, leaving.set)
        await asyncio.gather(sut.promote(), sut.sweep(), sut.sweep_waits())

    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(live())
    finally:
        loop.end()


def test_dead_workers_are_found_while_a_job_of_ones_own_is_always_due() -> None:
    store = Store(NOTHING, DEAD)

    def begin(sut: Maintenance) -> None:
        store.meanwhile["promote"] = lambda: sut.due_in(timedelta())
        sut.due_in(timedelta())

    maintain(store, seconds=15, begin=begin)
    assert len(store.times("promote")) > 1000
    assert len(store.times("due")) == 2
    assert len(store.times("reap")) == len(store.times("expire")) == 1


def test_a_job_delayed_while_a_look_is_under_way_makes_the_next_look_sooner() -> None:
    store = Store()
    maintain(store, seconds=5, begin=lambda sut: store.meanwhile.update(due=sut.delayed))
    first, second, *_ = store.times("due")
    assert second - first == pytest.approx(1 + ROUND_TRIP)


def test_the_pause_between_looks_begins_when_one_is_over() -> None:
    store = Store()
    maintain(store, seconds=11, begin=lambda _: None)
    first, second = store.times("due")
    assert second - first == pytest.approx(10 + ROUND_TRIP)


def test_a_wait_that_is_due_is_woken_and_nothing_is_promoted_for_it() -> None:
    store = Store(Due(promote_in=None, must_expire=False, must_reap=False, wake_in=timedelta()))
    maintain(store, seconds=0.5, begin=lambda _: None)
    assert len(store.times("wake")) == 1
    assert store.times("promote") == []


def test_the_next_look_is_when_the_next_wait_is_due() -> None:
    store = Store(Due(promote_in=None, must_expire=False, must_reap=False, wake_in=timedelta(seconds=4)))
    maintain(store, seconds=9, begin=lambda _: None)
    first, second = store.times("due")
    assert second - first == pytest.approx(4 + ROUND_TRIP, abs=0.01)


def test_a_wait_of_ones_own_is_woken_at_the_instant_it_is_due() -> None:
    store = Store()
    maintain(store, seconds=5, begin=lambda sut: sut.wakes_in(timedelta(seconds=2)))
    (woken,) = store.times("wake")
    assert woken == pytest.approx(2, abs=0.01)
    assert store.times("promote") == []


def test_jobs_that_wait_for_other_code_are_released_when_a_look_says_so() -> None:
    store = Store(Due(promote_in=None, must_expire=False, must_reap=False, must_release=True))
    maintain(store, seconds=5, begin=lambda _: None)
    assert len(store.times("release_due")) == 1


def test_all_suspended_jobs_are_looked_at_page_by_page_every_poll() -> None:
    store = Store()
    maintain(store, seconds=65, begin=lambda _: None)
    assert store.pages == [None, *PAGE_ENDS] * 2
    first, *_, last = store.times("sweep_waits")
    assert first == pytest.approx(30, abs=0.1)
    assert last == pytest.approx(60, abs=0.2)


def test_the_reaper_waits_one_lease_from_the_first_look_that_found_the_store_back() -> None:
    """Not from the last one that failed: until the next the store may have been away."""
    store = Store(*[DEAD] * 20)
    store.is_away_until = 25
    maintain(store, seconds=100, begin=lambda _: None)
    assert store.times("due")[:4] == pytest.approx([0, 10, 20, 30], abs=0.1)
    first, *_ = store.times("reap")
    assert first == pytest.approx(60, abs=0.2)


def test_a_reaper_that_others_are_in_the_way_of_tries_again_at_the_next_look() -> None:
    store = Store(*[DEAD] * 20)
    store.is_busy_until = 15
    maintain(store, seconds=35, begin=lambda _: None)
    assert store.times("reap") == pytest.approx([0, 10, 20, 30], abs=0.1)


def test_a_store_that_answers_late_for_ever_is_reaped() -> None:
    store = Store(*[DEAD] * 20)
    store.round_trip = 12
    maintain(store, seconds=100, begin=lambda _: None)
    first, *_ = store.times("reap")
    assert first == pytest.approx(24, abs=0.1)  # after the look, and after what has expired


@pytest.mark.parametrize(
    ("counted", "seconds"),
    [
        ({}, 15),
        ({State.SUSPENDED: 10_000}, 15),
        ({State.SUSPENDED: 10_000, State.READY: 10_000, State.DONE: 10_000, State.DEAD: 10_000}, 30),
        ({State.SUSPENDED: 100_000}, 60),
        ({State.READY: 10_000_000}, 60),
    ],
)
def test_a_store_with_many_live_jobs_is_counted_less_often_and_once_a_minute(
    counted: dict[State, int], seconds: int
) -> None:
    """A count reads them all: what it costs an idle worker's database in a second must not grow with them."""
    assert until_count(Stats(by_state=counted, queues=()), timedelta(seconds=15)) == timedelta(seconds=seconds)


def test_counts_that_are_asked_for_seldom_stay_so() -> None:
    assert until_count(Stats(by_state={State.READY: 100_000}, queues=()), timedelta(hours=1)) == timedelta(hours=1)
