"""Start and stop of the worker, as every role must do them: any order, any number, any number of times."""

from __future__ import annotations

import asyncio
import threading

import pytest

from app.domain.errors import Draining, DriverUnavailable, SettingsInvalid
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Phase
from app.worker.lease import Lease
from tests.roles.harness import Bench, Flaky, working


@job("quick.job")
async def quick() -> int:
    return 1


def notice(bench: Bench, seconds: float = 5.0) -> DrainNotice:
    return DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=seconds)


def heartbeats() -> int:
    return sum(thread.name == "outlast.heartbeat" for thread in threading.enumerate())


async def test_ten_cycles_leave_nothing_behind() -> None:
    bench = Bench([quick])
    tasks = len(asyncio.all_tasks())
    for cycle in range(10):
        await bench.worker.start()
        job_id = await bench.enqueue("quick.job")
        await bench.until("attempt.completed", job_id)
        await bench.worker.stop()
        assert bench.worker.phase is Phase.STOPPED
        assert len(await bench.driver.workers()) == cycle + 1
    assert len(asyncio.all_tasks()) == tasks
    assert heartbeats() == 0
    assert asyncio.get_running_loop().get_task_factory() is None


async def test_concurrent_starts_are_one_start() -> None:
    bench = Bench([quick])
    await asyncio.gather(*(bench.worker.start() for _ in range(5)))
    assert len(await bench.driver.workers()) == 1
    assert heartbeats() == 1
    await bench.worker.stop()


async def test_concurrent_stops_join_one_teardown() -> None:
    bench = Bench([quick])
    await bench.worker.start()
    await asyncio.gather(*(bench.worker.stop() for _ in range(5)))
    assert bench.worker.phase is Phase.STOPPED
    assert bench.probe.names().count("worker.stopped") == 1


async def test_stop_before_start_and_after_stop_returns_at_once() -> None:
    bench = Bench([quick])
    await bench.worker.stop()
    await bench.worker.start()
    await bench.worker.stop()
    await bench.worker.stop()
    assert bench.worker.phase is Phase.STOPPED


async def test_a_stop_that_lands_while_starting_ends_the_start() -> None:
    bench = Bench([quick], driver=Flaky())
    assert isinstance(bench.driver, Flaky)
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        entered.set()
        await go_on.wait()

    bench.driver.hold["register_worker"] = hold
    start = asyncio.ensure_future(bench.worker.start())
    await entered.wait()
    stop = asyncio.ensure_future(bench.worker.stop())
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        await bench.worker.start()
    go_on.set()
    await asyncio.gather(start, stop)
    assert bench.worker.phase is Phase.STOPPED


async def test_start_is_refused_while_draining_and_allowed_after() -> None:
    release = asyncio.Event()

    @job("held.job")
    async def held() -> None:
        await release.wait()

    bench = Bench([held])
    await bench.worker.start()
    job_id = await bench.enqueue("held.job")
    await bench.until("attempt.started", job_id)
    bench.worker.drain(notice(bench))
    with pytest.raises(Draining):
        await bench.worker.start()
    release.set()
    await bench.worker.stop()
    await bench.worker.start()
    assert bench.worker.phase is Phase.RUNNING
    await bench.worker.stop()


async def test_a_manual_stop_tells_nobody_and_waits_for_the_body() -> None:
    release, told = asyncio.Event(), list[bool]()

    @job("calm.job")
    async def calm(ctx: JobContext) -> str:
        await release.wait()
        told.append(ctx.signal.aborted)
        return "done"

    bench = Bench([calm])
    await bench.worker.start()
    job_id = await bench.enqueue("calm.job")
    await bench.until("attempt.started", job_id)
    stop = asyncio.ensure_future(bench.worker.stop())
    while bench.worker.phase is not Phase.LEAVING:
        await asyncio.sleep(0)
    assert not stop.done()
    release.set()
    await stop
    view = await bench.view(job_id)
    assert (view.state, view.result, view.late) == (State.DONE, '"done"', False)
    assert told == [False]


async def test_what_is_enqueued_after_stop_stays_ready() -> None:
    bench = Bench([quick])
    await bench.worker.start()
    await bench.worker.stop()
    job_id = await bench.enqueue("quick.job")
    assert (await bench.view(job_id)).state is State.READY


async def test_a_start_without_a_store_fails_and_can_be_repeated() -> None:
    driver = Flaky()
    bench = Bench([quick], driver=driver)
    driver.before["register_worker"] = DriverUnavailable("down", fix="wait")
    with pytest.raises(DriverUnavailable):
        await bench.worker.start()
    assert bench.worker.phase is Phase.STOPPED
    driver.before.clear()
    await bench.worker.start()
    await bench.worker.stop()


async def test_a_start_without_a_heartbeat_connection_fails_and_closes_the_row() -> None:
    driver = Flaky()
    bench = Bench([quick], driver=driver)
    driver.before["open_heartbeat"] = DriverUnavailable("down", fix="wait")
    with pytest.raises(DriverUnavailable):
        await bench.worker.start()
    (row,) = await bench.driver.workers()
    assert row.closed_at is not None
    assert heartbeats() == 0


async def test_a_loop_that_dies_is_reported_to_the_owner() -> None:
    driver = Flaky()
    bench = Bench([quick], driver=driver)
    await bench.worker.start()
    bench.worker._session._claims._look = _die  # type: ignore[union-attr,method-assign] # a fault of our own
    await bench.enqueue("quick.job")
    failure = await bench.worker.wait_failed()
    assert isinstance(failure, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        await bench.worker.stop()
    assert bench.worker.phase is Phase.STOPPED


async def _die(_lease: Lease) -> bool:
    raise ZeroDivisionError


async def test_a_heartbeat_whose_loop_cannot_be_made_fails_the_start_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    bench = Bench([quick])
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "new_event_loop", no_loop)
        with pytest.raises(OSError, match="Too many open files"):
            await bench.worker.start()
    assert bench.worker.phase is Phase.STOPPED
    await bench.worker.start()
    await bench.until("attempt.completed", await bench.enqueue("quick.job"))
    await bench.worker.stop()


async def test_a_worker_that_knows_no_job_is_refused() -> None:
    with pytest.raises(SettingsInvalid):
        Bench([])


async def test_the_workers_row_says_how_it_learns_of_work_and_that_it_left() -> None:
    async with working(quick) as bench:
        await bench.probe.wait("worker.started")
        job_id = await bench.enqueue("quick.job")
        await bench.until("attempt.completed", job_id)
        (row,) = await bench.driver.workers()
        assert (row.wakeup, row.host, row.code_version, row.drain_phase) == ("listen", "host-a", "1.0.0", None)
        (document,) = await bench.driver.job_types()
        assert document.name == "quick.job"
    (row,) = await bench.driver.workers()
    assert row.closed_at is not None
