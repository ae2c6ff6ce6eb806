"""Maintenance in a worker: looks as seldom as it may, and is told when to look sooner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.snapshot import Due
from app.drivers.protocol import NEWS, Wake
from app.jobs.handle import job
from tests.roles.harness import QUICK, Flaky, working

# No look of these comes by itself within a test.
RARE = replace(QUICK, sweep=timedelta(minutes=10), poll=timedelta(minutes=10))


@job("quick.job")
async def quick() -> int:
    return 1


class Deaf(Flaky):
    """A store without wake-ups."""

    @asynccontextmanager
    async def listen(self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake] = NEWS) -> AsyncIterator[None]:
        on_wake(Wake.LOST)
        yield


@pytest.mark.parametrize("driver", [Flaky, Deaf], ids=["told of it", "by looking"])
async def test_a_job_that_another_process_delayed_runs_when_it_is_due(driver: type[Flaky]) -> None:
    store = driver()
    async with working(quick, driver=store, options=RARE) as bench:
        for _ in range(2):
            job_id = await bench.enqueue("quick.job", delay=timedelta(milliseconds=50))
            await bench.until("attempt.completed", job_id)


async def test_sweeps_are_left_out_while_there_is_nothing_for_them() -> None:
    store = Flaky()
    async with working(quick, driver=store) as bench:
        await bench.until("attempt.completed", await bench.enqueue("quick.job"))
        store.calls.clear()
        while store.calls.count("due") < 5:
            await asyncio.sleep(0.01)
        assert {"promote", "expire", "reap"}.isdisjoint(store.calls)


async def test_a_delayed_job_of_others_that_cannot_be_promoted_yet_is_not_looked_at_without_a_pause() -> None:
    class Locked(Flaky):
        """Another worker is just promoting what is due."""

        async def due(self) -> Due:
            self.calls.append("due")
            return Due(promote_in=timedelta(), must_expire=False, must_reap=False)

        async def promote(self, batch: int = 1000) -> int:
            self.calls.append("promote")
            return 0

    store = Locked()
    async with working(quick, driver=store) as bench:
        await bench.until("attempt.completed", await bench.enqueue("quick.job"))
        store.calls.clear()
        began = asyncio.get_running_loop().time()
        while store.calls.count("due") < 5:
            await asyncio.sleep(0)
        # However fast or slow the machine is: four pauses, each of a sweep less its jitter.
        assert asyncio.get_running_loop().time() - began >= 4 * 0.75 * QUICK.sweep.total_seconds() - 0.001
