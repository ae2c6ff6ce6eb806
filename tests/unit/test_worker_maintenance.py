"""When a worker looks for what is due: in virtual time, so that every instant is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, cast

import pytest

from app.domain.snapshot import Due
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.worker.maintenance import Maintenance
from app.worker.options import WorkerOptions
from tests.simulation.loop import VirtualLoop

ROUND_TRIP = 0.01
NOTHING = Due(promote_in=None, must_expire=False, must_reap=False)
DEAD = Due(promote_in=None, must_expire=True, must_reap=True)


class Store:
    """A store whose every answer takes a round trip; what happens meanwhile is the test's."""

    def __init__(self, *looks: Due) -> None:
        self.calls: list[tuple[str, float]] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}
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
        await asyncio.sleep(ROUND_TRIP / 2)
        self.meanwhile.get(verb, int)()
        await asyncio.sleep(ROUND_TRIP / 2)
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
            may_reap=lambda: True,
            roll=lambda: 0.0,
            monotonic=asyncio.get_running_loop().time,
        )
        sut.listens(is_listening=True)
        begin(sut)
        asyncio.get_running_loop().call_later(seconds, leaving.set)
        await asyncio.gather(sut.promote(), sut.sweep())

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
