"""Calls of a worker's life that are made once are repeated when they were cut: coming, showing its jobs, leaving."""

from __future__ import annotations

import asyncio

import pytest

from app.domain.errors import DriverUnavailable
from app.drivers.memory.driver import MemoryDriver
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.worker.options import WorkerOptions
from app.worker.registration import Registration
from tests.roles.harness import Bench, Flaky

CUT = DriverUnavailable("the connection was cut", fix="repeat the call")


@job("plain.job")
async def plain() -> None:
    """Nothing to do."""


def cut_once(driver: Flaky, verb: str, *, is_after: bool) -> None:
    """Let a verb's first call fail, before it took place or after it."""
    failing = driver.after if is_after else driver.before
    failing[verb] = CUT

    async def only_the_first() -> None:
        if driver.calls.count(verb) > 1:
            failing.pop(verb, None)

    driver.hold[verb] = only_the_first


@pytest.mark.parametrize("is_after", [False, True], ids=["before it took place", "its reply lost"])
@pytest.mark.parametrize("verb", ["register_worker", "publish_job_types", "close_worker"])
async def test_a_cut_call_at_the_start_or_the_end_is_repeated(verb: str, is_after: bool) -> None:
    driver = Flaky()
    cut_once(driver, verb, is_after=is_after)
    bench = Bench([plain], driver=driver)
    await bench.worker.start()
    await bench.until("attempt.completed", await bench.enqueue("plain.job"))
    await bench.worker.stop()
    assert driver.calls.count(verb) == 2
    (row,) = await driver.workers()
    assert row.closed_at is not None
    assert [doc.name for doc in await driver.job_types()] == ["plain.job"]


async def test_a_registration_repeated_by_whoever_called_it_makes_no_second_worker() -> None:
    driver = Flaky()
    bench = Bench([plain], driver=driver)
    registration = Registration(
        driver=driver,
        options=WorkerOptions(host="host-a", pid=1),
        names=frozenset({"plain.job"}),
        telemetry=bench.telemetry,
        clock=asyncio.get_running_loop().time,
        roll=lambda: 0.0,
    )
    driver.after["register_worker"] = CUT
    for _ in range(2):
        with pytest.raises(DriverUnavailable):
            await registration.register()
    del driver.after["register_worker"]
    first = await registration.register()
    assert [row.id for row in await driver.workers()] == [first.worker_id]
    assert (await registration.register()).worker_id != first.worker_id, "the next life is another worker"


async def test_a_body_is_abandoned_and_reported_while_renewals_fail() -> None:
    """After a renewal that failed there is no connection at hand, just when the last two calls have to be made."""
    may_end = asyncio.Event()

    @job("deaf.job", abort="signal")
    async def deaf() -> None:
        await may_end.wait()

    inner = MemoryDriver()
    driver = Flaky(inner)
    bench = Bench([deaf], driver=driver)
    await bench.worker.start()
    job_id = await bench.enqueue("deaf.job")
    await bench.until("attempt.started", job_id)
    driver.before["renew"] = CUT
    await bench.probe.wait("heartbeat.failed")
    bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=1.0))
    await bench.worker.stop()
    (view,) = await driver.drains(limit=10)
    assert [(one.run.job_id, one.run.fate) for one in view.runs] == [(job_id, "abandoned")]
    (running,) = inner._store.running()
    assert running[1].is_abandoned
    may_end.set()
