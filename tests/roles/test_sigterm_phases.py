"""SIGTERM in each phase of a worker's life: from it on nothing is claimed, and the process is gone within its budget.

The signal is real and comes to this very process; what it lands in is held open by the store, so that order decides
and not luck.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.domain.job import JobId
from app.domain.state import State
from app.drivers.reading import ListQuery
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.lifecycle.role import Phase
from app.lifecycle.shutdown import ExitCode, Shutdown
from tests.roles.harness import Bench, Flaky, Gate

BUDGET = 3.0
ENDED: list[int] = []


@job("quick.job")
async def quick() -> int:
    return 1


@job("told.job")
async def told(ctx: JobContext) -> None:
    await ctx.signal.wait()
    ctx.signal.raise_if_aborted()


@job("enqueues.job")
async def enqueues() -> None:
    await quick.enqueue({})
    await asyncio.Event().wait()


class Process:
    """A worker under a shutdown that owns this process's signals."""

    def __init__(self, *handles: JobHandle[Any, Any], seconds: float = BUDGET) -> None:
        self.driver = Flaky()
        self.bench = Bench(handles or (quick,), driver=self.driver)
        self.shutdown = Shutdown(drain_seconds=seconds, telemetry=self.bench.telemetry, end=ENDED.append)
        self.serving: asyncio.Future[int] | None = None
        self.termed = 0.0

    @asynccontextmanager
    async def up(self, *, until: Phase = Phase.RUNNING) -> AsyncIterator[Process]:
        with self.shutdown.installed():
            self.serving = asyncio.ensure_future(self.shutdown.serve([self.bench.worker]))
            while self.bench.worker.phase is not until:
                await asyncio.sleep(0)
            yield self
            await self.serving

    async def begun(self, name: str) -> JobId:
        job_id = await self.bench.enqueue(name, max_attempts=1)
        await self.bench.until("attempt.started", job_id)
        return job_id

    async def term(self) -> None:
        """Send SIGTERM, and come back once the roles were told."""
        self.termed = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        await self.bench.probe.wait("drain.started")

    async def leaves(self, *, claims: int | None = None) -> int:
        """Wait for the end, within the budget; nothing was claimed after the signal."""
        assert self.serving is not None
        before = self.driver.calls.count("claim") if claims is None else claims
        code = await self.serving
        assert time.monotonic() - self.termed <= self.shutdown._seconds + 2
        assert self.driver.calls.count("claim") == before
        await self.bench.worker.stop()
        assert self.bench.worker.phase is Phase.STOPPED
        assert ENDED == []
        return code


async def test_while_it_starts() -> None:
    process = Process()
    gate = Gate(process.driver, "register_worker")
    async with process.up(until=Phase.STARTING):
        await gate.entered.wait()
        await process.term()
        gate.go_on.set()
        assert await process.leaves(claims=0) == ExitCode.CLEAN
    (row,) = await process.bench.driver.workers()
    assert row.closed_at is not None


async def test_while_it_waits_for_work() -> None:
    process = Process()
    async with process.up():
        await process.term()
        assert await process.leaves() == ExitCode.CLEAN


async def test_while_a_claim_is_under_way() -> None:
    process = Process()
    gate = Gate(process.driver, "claim")
    job_id = await process.bench.enqueue("quick.job")
    async with process.up():
        await gate.entered.wait()
        await process.term()
        gate.go_on.set()
        assert await process.leaves() == ExitCode.CLEAN
    view = await process.bench.view(job_id)
    assert (view.state, view.counters.attempt, view.counters.interrupts) == (State.READY, 0, 0)


async def test_while_a_body_runs() -> None:
    process = Process(told)
    async with process.up():
        job_id = await process.begun("told.job")
        await process.term()
        assert await process.leaves() == ExitCode.CLEAN
    view = await process.bench.view(job_id)
    assert (view.state, view.counters.attempt, view.counters.interrupts) == (State.READY, 0, 1)
    assert process.shutdown.status().tally.interrupted == 1


async def test_while_a_body_is_in_a_call_to_the_store() -> None:
    """The call is not cut at the cancel instant: half-known writes are worse than a wait."""
    process = Process(enqueues, quick)
    gate = Gate(process.driver, "enqueue")
    async with process.up():
        gate.go_on.set()
        job_id = await process.bench.enqueue("enqueues.job")
        gate.go_on.clear()
        gate.entered.clear()
        await process.bench.until("attempt.started", job_id)
        await gate.entered.wait()
        await process.term()
        notice = process.shutdown.notice
        assert notice is not None
        while time.monotonic() < notice.cancel_at:
            await asyncio.sleep(notice.cancel_at - time.monotonic())
        gate.go_on.set()
        assert await process.leaves() == ExitCode.CLEAN
    assert (await process.bench.view(job_id)).counters.interrupts == 1
    (enqueued,) = (one for one in (await process.bench.driver.list(ListQuery())).items if one.name == "quick.job")
    assert enqueued.state is State.READY


async def test_while_an_outcome_is_being_stored() -> None:
    process = Process()
    gate = Gate(process.driver, "settle")
    async with process.up():
        job_id = await process.bench.enqueue("quick.job")
        await gate.entered.wait()
        await process.term()
        gate.go_on.set()
        rides = process.driver.calls.count("claim")
        assert await process.leaves(claims=max(rides, process.driver.calls.count("claim"))) == ExitCode.CLEAN
    assert (await process.bench.view(job_id)).state is State.DONE


async def test_while_it_leaves_already() -> None:
    process = Process(told)
    async with process.up():
        await process.begun("told.job")
        gate = Gate(process.driver, "settle")
        await process.term()
        first = process.shutdown.notice
        await gate.entered.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        gate.go_on.set()
        assert await process.leaves() == ExitCode.CLEAN
    assert process.shutdown.notice is first
    assert process.bench.probe.names().count("worker.drain_signalled") == 1


async def test_while_it_closes() -> None:
    process = Process()
    gate = Gate(process.driver, "close_worker")
    async with process.up():
        await process.term()
        await gate.entered.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        gate.go_on.set()
        assert await process.leaves() == ExitCode.CLEAN


async def test_with_no_budget_at_all() -> None:
    process = Process(told, seconds=0.0)
    async with process.up():
        await process.begun("told.job")
        await process.term()
        assert await process.leaves() == ExitCode.ABANDONED
