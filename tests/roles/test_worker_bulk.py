"""Bulk operations in a worker: found, worked off in batches, left at a drain, gone on with by the next."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.bulk import BULK_KEPT, BulkAction, BulkId, BulkState, BulkStep, BulkView
from app.domain.clock import ManualClock
from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.state import State
from app.drivers.memory.driver import MemoryDriver
from app.jobs.handle import job
from tests.roles.harness import QUICK, Bench, working
from tests.support.bulk import a_bulk

LATER = timedelta(hours=1)


@job("quick.job")
async def quick() -> int:
    return 1


async def delayed(bench: Bench, many: int) -> list[JobId]:
    return [await bench.enqueue("quick.job", delay=LATER) for _ in range(many)]


def bulk_of(bench: Bench) -> Any:
    driver: Any = bench.driver
    return driver.bulk


async def ended(bench: Bench, bulk_id: BulkId) -> BulkView:
    async with asyncio.timeout(10):
        while True:
            view: BulkView = await bulk_of(bench).find(bulk_id)
            if view.ended_at is not None:
                return view
            await asyncio.sleep(0.005)


async def test_a_worker_works_an_operation_off_and_says_so() -> None:
    async with working(quick) as bench:
        jobs = await delayed(bench, 3)
        made = await bulk_of(bench).make(a_bulk(BulkAction.CANCEL))
        await bench.probe.wait("bulk.done", bulk_id=str(made.id), action="cancel", done=3, changed=0, failed=0)
        assert [(await bench.view(job_id)).state for job_id in jobs] == [State.CANCELLED] * 3
        assert bench.value("outlast_bulk_jobs_total", action="cancel", verdict="done") == 3


async def test_jobs_that_are_made_ready_run() -> None:
    async with working(quick) as bench:
        (job_id,) = await delayed(bench, 1)
        await bulk_of(bench).make(a_bulk(BulkAction.RUN_NOW))
        await bench.until("attempt.completed", job_id)


async def test_a_body_that_runs_is_told_of_a_bulk_cancel() -> None:
    begun = asyncio.Event()

    @job("long.job")
    async def long() -> None:
        begun.set()
        await asyncio.sleep(60)

    async with working(long) as bench:
        job_id = await bench.enqueue("long.job")
        await begun.wait()
        await bulk_of(bench).make(a_bulk(BulkAction.CANCEL, State.RUNNING, reason="stop"))
        await bench.until("attempt.superseded", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.state_reason) == (State.CANCELLED, "stop")


class Slow(MemoryDriver):
    """A store whose batches are of two jobs, and wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()
        self.begun = asyncio.Event()
        self.steps = 0
        inner = self.bulk.step

        async def step(*, only: BulkId | None = None, after: BulkId | None = None, batch: int = 500) -> BulkStep | None:
            del batch
            self.steps += 1
            self.begun.set()
            await self.may_go.wait()
            return await inner(only=only, after=after, batch=2)

        self.bulk.step = step  # type: ignore[method-assign] # a batch that the test holds


async def test_a_drain_ends_behind_the_batch_at_hand_and_the_next_worker_goes_on() -> None:
    store = Slow()
    async with working(quick, driver=store) as bench:
        await delayed(bench, 5)
        made = await bulk_of(bench).make(a_bulk(BulkAction.CANCEL))
        await store.begun.wait()
        stopping = asyncio.create_task(bench.worker.stop())
        await asyncio.sleep(0)
        store.may_go.set()
        await stopping
        view = await store.bulk.find(made.id)
        assert view is not None
        assert (view.state, view.done) == (BulkState.RUNNING, 2)
    async with working(quick, driver=store) as bench:
        assert (await ended(bench, made.id)).done == 5


async def test_a_store_that_is_away_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryDriver()
    inner, failures = store.bulk.step, [DriverUnavailable("away", fix="wait"), RuntimeError("torn")]

    async def step(**how: Any) -> BulkStep | None:
        if failures:
            raise failures.pop()
        return await inner(**how)

    monkeypatch.setattr(store.bulk, "step", step)
    async with working(quick, driver=store) as bench:
        await delayed(bench, 1)
        made = await bulk_of(bench).make(a_bulk(BulkAction.CANCEL))
        assert (await ended(bench, made.id)).done == 1
        await bench.probe.wait("store.call_failed", verb="bulk.step", count=2)


async def test_old_operations_are_deleted_beside() -> None:
    clock = ManualClock(datetime.now(UTC))
    store = MemoryDriver(clock)
    await store.open()
    made = await store.bulk.make(a_bulk(BulkAction.CANCEL))
    clock.advance(BULK_KEPT + timedelta(seconds=1))
    async with working(quick, driver=store, options=QUICK), asyncio.timeout(10):
        while await store.bulk.find(made.id) is not None:
            await asyncio.sleep(0.005)
