"""A worker that a program starts and stops by itself, drained with its process all the same, or not if it says so.

SIGTERM is real and comes to this very process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import Draining, DriverUnavailable
from app.domain.job import JobId
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.lifecycle.role import Phase, Role
from app.lifecycle.shutdown import Shutdown
from app.worker.worker import Worker
from tests.roles.harness import QUICK, Bench, Flaky, Gate

BUDGET = 3.0


@job("quick.job")
async def quick() -> int:
    return 1


@job("told.job")
async def told(ctx: JobContext) -> None:
    await ctx.signal.wait()
    ctx.signal.raise_if_aborted()


class Embedded:
    """A worker that a program starts and stops by itself, drained with its process."""

    def __init__(self, *handles: JobHandle[Any, Any], seconds: float = BUDGET, drain_on_shutdown: bool = True) -> None:
        self.driver = Flaky()
        self.bench = Bench(handles, driver=self.driver)
        self.shutdown = Shutdown(drain_seconds=seconds, telemetry=self.bench.telemetry)
        kit = self.bench.worker._kit
        self.bench.worker = Worker(
            driver=self.driver,
            registry=kit.registry,
            options=QUICK,
            telemetry=self.bench.telemetry,
            roll=kit.roll,
            client=kit.client,
            shutdown=self.shutdown,
            drain_on_shutdown=drain_on_shutdown,
        )
        self.worker = self.bench.worker

    async def begun(self, name: str) -> JobId:
        job_id = await self.bench.enqueue(name)
        await self.bench.until("attempt.started", job_id)
        return job_id


async def test_in_a_manual_stop_it_binds_the_wait_in_progress() -> None:
    """Nobody was told and there was no deadline; from the signal on there are both."""
    leaving = Embedded(told, seconds=1.0)
    with leaving.shutdown.installed():
        await leaving.worker.start()
        job_id = await leaving.begun("told.job")
        stop = asyncio.ensure_future(leaving.worker.stop())
        while leaving.worker.phase is not Phase.LEAVING:
            await asyncio.sleep(0)
        assert not leaving.bench.probe.of("worker.drain_signalled")
        os.kill(os.getpid(), signal.SIGTERM)
        sent = time.monotonic()
        await stop
    assert time.monotonic() - sent < 1.0
    assert (await leaving.bench.view(job_id)).counters.interrupts == 1


async def test_in_a_manual_stop_that_closes_it_binds_that_wait_too() -> None:
    leaving = Embedded(quick, seconds=0.5)
    gate = Gate(leaving.driver, "close_worker")
    with leaving.shutdown.installed():
        await leaving.worker.start()
        stop = asyncio.ensure_future(leaving.worker.stop())
        await gate.entered.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        sent = time.monotonic()
        await stop
    assert time.monotonic() - sent < 2.0, "the close itself may take five seconds, a process that leaves has less"
    assert leaving.worker.phase is Phase.STOPPED


async def test_ten_cycles_hook_once_and_leave_no_hook() -> None:
    leaving = Embedded(quick)
    with leaving.shutdown.installed():
        for _ in range(10):
            await leaving.worker.start()
            await leaving.worker.start()
            assert hooked(leaving) == [leaving.worker]
            job_id = await leaving.bench.enqueue("quick.job")
            await leaving.bench.until("attempt.completed", job_id)
            view = await leaving.bench.view(job_id)
            assert (view.state, view.late) == (State.DONE, False), "not born aborted"
            await leaving.worker.stop()
            assert hooked(leaving) == []


async def test_it_is_not_started_while_the_process_leaves() -> None:
    leaving = Embedded(quick)
    leaving.shutdown.request("http")
    with pytest.raises(Draining):
        await leaving.worker.start()
    assert await leaving.bench.driver.workers() == ()


async def test_without_a_hook_the_owner_stops_it() -> None:
    leaving = Embedded(told, drain_on_shutdown=False)
    with leaving.shutdown.installed():
        await leaving.worker.start()
        await leaving.begun("told.job")
        os.kill(os.getpid(), signal.SIGTERM)
        notice = await leaving.shutdown.wait_requested()
        assert leaving.worker.phase is Phase.RUNNING
        assert not leaving.bench.probe.of("worker.drain_signalled")
        leaving.worker.drain(notice)
        await leaving.worker.stop()
    assert leaving.worker.tally().interrupted == 1


async def test_a_drain_asked_for_through_the_store_tells_the_process() -> None:
    leaving = Embedded(told)
    with leaving.shutdown.installed():
        await leaving.worker.start()
        job_id = await leaving.begun("told.job")
        assert leaving.worker.worker_id is not None
        await leaving.driver.inner.ask_drain(leaving.worker.worker_id, by="ann")
        notice = await leaving.shutdown.wait_requested()
        await leaving.worker.stop()
    assert notice.cause == "asked for by ann"
    assert (await leaving.bench.view(job_id)).counters.interrupts == 1


async def test_a_worker_that_no_process_drains_leaves_by_itself_when_asked() -> None:
    bench = Bench([told])
    await bench.worker.start()
    job_id = await bench.enqueue("told.job")
    await bench.until("attempt.started", job_id)
    assert bench.worker.worker_id is not None
    await bench.driver.ask_drain(bench.worker.worker_id, by="ann")
    await bench.probe.wait("worker.drain_signalled", cause="asked for by ann")
    await bench.until("attempt.interrupted", job_id)
    await bench.worker.stop()
    (row,) = await bench.driver.workers()
    assert (row.drain_asked_by, row.drain_reason) == ("ann", "asked for by ann")
    assert row.closed_at is not None


async def test_a_drain_asked_for_under_an_id_that_the_worker_lost_is_heard_under_the_next() -> None:
    driver = Flaky()
    bench = Bench([told], driver=driver, options=replace(QUICK, lease=timedelta(seconds=1)))
    await bench.worker.start()
    first = bench.worker.worker_id
    assert first is not None
    down = DriverUnavailable("cut off", fix="wait")
    driver.before |= dict.fromkeys(("renew", "open_heartbeat", "register_worker"), down)
    await bench.driver.ask_drain(first, by="ann")
    await bench.probe.wait("worker.lease_over")
    driver.before.clear()
    await bench.probe.wait("worker.drain_signalled", cause="asked for by ann")
    assert bench.worker.worker_id != first
    await bench.worker.stop()


def hooked(leaving: Embedded) -> list[Role]:
    return list(leaving.shutdown._hooked)
