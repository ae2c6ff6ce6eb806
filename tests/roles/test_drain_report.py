"""What a worker reports of its drain: the fate of every run it held, and who never read that it was told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from app.domain.drain import DrainView
from app.domain.errors import DriverUnavailable
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Phase
from tests.roles.harness import Bench, Flaky


@job("heeds.job")
async def heeds(ctx: JobContext) -> None:
    await ctx.signal.wait()
    ctx.signal.raise_if_aborted()


@job("ends.job")
async def ends(ctx: JobContext) -> None:
    while not ctx.signal.aborted:
        await asyncio.sleep(0.01)


@job("cancelled.job")
async def cancelled() -> None:
    await asyncio.Event().wait()


@job("reads.job")
async def reads(ctx: JobContext) -> None:
    """Reads that it was told, and goes on until it is cancelled."""
    while True:
        assert ctx.signal.reason in {None, "drain"}
        await asyncio.sleep(0.01)


def notice(bench: Bench, seconds: float) -> DrainNotice:
    return DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=seconds)


async def drained(bench: Bench, *names: str, seconds: float = 0.6) -> DrainView:
    for name in names:
        await bench.until("attempt.started", await bench.enqueue(name, max_attempts=1))
    bench.worker.drain(notice(bench, seconds))
    await bench.worker.stop()
    (view,) = await bench.driver.drains(limit=10)
    return view


async def test_every_run_has_its_fate_and_who_did_not_read_is_told() -> None:
    release = asyncio.Event()

    @job("deaf.job", abort="signal")
    async def deaf() -> None:
        await release.wait()

    bench = Bench([heeds, ends, cancelled, reads, deaf])
    await bench.worker.start()
    worker_id = bench.worker.worker_id
    view = await drained(bench, "heeds.job", "ends.job", "cancelled.job", "reads.job", "deaf.job")
    assert (view.worker_id, view.reason) == (worker_id, "SIGTERM")
    assert {one.run.name: (one.run.fate, one.run.has_ignored) for one in view.runs} == {
        "heeds.job": ("interrupted", False),
        "ends.job": ("completed", False),
        "cancelled.job": ("interrupted", True),
        "reads.job": ("interrupted", False),
        "deaf.job": ("abandoned", True),
    }
    tally = bench.worker.tally()
    assert (tally.completed, tally.interrupted, tally.abandoned, tally.other) == (1, 3, 1, 0)
    release.set()


async def test_a_run_has_not_acknowledged_what_it_was_not_told() -> None:
    """It has read that its time is over, which is no answer to a drain that nobody has asked for."""
    has_read, release = asyncio.Event(), asyncio.Event()

    @job("late.job", abort="signal", timeout=timedelta(seconds=0.05))
    async def late(ctx: JobContext) -> None:
        await ctx.signal.wait()
        has_read.set()
        await release.wait()

    bench = Bench([late])
    await bench.worker.start()
    await bench.enqueue("late.job", max_attempts=1)
    await has_read.wait()
    (held,) = bench.worker.held()
    assert (held.told_at, held.is_acknowledged) == (None, False)
    told = notice(bench, 10)
    bench.worker.drain(told)
    (held,) = bench.worker.held()
    assert held.told_at is not None
    assert held.told_at >= told.started
    assert held.is_acknowledged
    release.set()
    await bench.worker.stop()


async def test_a_manual_stop_leaves_no_report() -> None:
    bench = Bench([heeds])
    await bench.worker.start()
    await bench.worker.stop()
    assert await bench.driver.drains(limit=10) == ()


async def test_a_report_that_cannot_be_kept_is_said_and_keeps_nobody() -> None:
    driver = Flaky()
    driver.before["report_drain"] = DriverUnavailable("away", fix="wait")
    bench = Bench([heeds], driver=driver)
    await bench.worker.start()
    bench.worker.drain(notice(bench, 2.0))
    await bench.worker.stop()
    assert bench.worker.phase is Phase.STOPPED
    assert len(bench.probe.of("store.call_failed", verb="report")) == 1


async def test_a_worker_that_drains_twice_in_two_lives_reports_twice() -> None:
    bench = Bench([heeds])
    for _ in range(2):
        await bench.worker.start()
        bench.worker.drain(notice(bench, 1.0))
        await bench.worker.stop()
    assert len(await bench.driver.drains(limit=10)) == 2
