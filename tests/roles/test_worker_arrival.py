"""The start of a worker whose store is away, or takes no writes yet: repeated for its time, and left when told to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import Draining, DriverUnavailable, SchemaOutdated
from app.jobs.handle import job
from app.lifecycle.role import Phase
from app.worker.arrival import once_there
from tests.roles.harness import QUICK, Bench, Flaky
from tests.support.made import new_worker

AWAY = DriverUnavailable("it only reads", fix="wait")
PATIENT = replace(QUICK, start=timedelta(seconds=60), lease=timedelta(seconds=60))
FIRST_CALLS = ["publish_job_types", "register_worker"]


@job("quick.job")
async def quick() -> int:
    return 1


async def tried(driver: Flaky, verb: str, times: int = 3) -> None:
    async with asyncio.timeout(5):
        while driver.calls.count(verb) < times:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("verb", FIRST_CALLS)
async def test_a_start_waits_for_a_store_that_comes_back(verb: str) -> None:
    driver = Flaky()
    driver.before[verb] = AWAY
    bench = Bench([quick], driver=driver, options=PATIENT)
    starting = asyncio.create_task(bench.worker.start())
    await tried(driver, verb)
    assert bench.worker.phase is Phase.STARTING
    del driver.before[verb]
    await starting
    await bench.until("attempt.completed", await bench.enqueue("quick.job"))
    await bench.worker.stop()
    assert len(await bench.driver.workers()) == 1, "one start, one row"


async def test_a_store_that_was_away_is_said_to_be_back_once_it_answers() -> None:
    """Not when it was last seen away: it may have been for the whole of the pause."""
    said = list[str]()

    async def call() -> str:
        said.append("called")
        if len(said) < 3:
            raise AWAY
        return "there"

    def back() -> None:
        said.append("back")

    never, clock = asyncio.Event(), asyncio.get_running_loop().time
    answer = await once_there(call, within_seconds=60, leaving=never, monotonic=clock, roll=lambda: 0.0, on_back=back)
    assert (answer, said) == ("there", ["called", "called", "called", "back"])


@pytest.mark.parametrize("verb", FIRST_CALLS)
async def test_a_start_whose_time_is_over_fails_and_leaves_nothing(verb: str) -> None:
    driver = Flaky()
    driver.before[verb] = AWAY
    bench = Bench([quick], driver=driver, options=replace(QUICK, start=timedelta(seconds=0.5)))
    with pytest.raises(DriverUnavailable):
        await bench.worker.start()
    assert driver.calls.count(verb) > 1
    assert bench.worker.phase is Phase.STOPPED
    assert await bench.driver.workers() == ()


@pytest.mark.parametrize("is_away", ["before the start", "at the start", "in the life before", "never"])
async def test_who_finds_the_store_away_gives_others_a_lease_before_it_calls_them_crashed(is_away: str) -> None:
    """A worker that is there, and could not renew during the outage, says so within that time."""
    driver = Flaky()
    bench = Bench([quick], driver=driver, options=PATIENT)
    other = await driver.inner.register_worker(new_worker(lease_ms=1))
    if is_away == "at the start":
        driver.before["register_worker"] = AWAY
    elif is_away == "before the start":
        bench.worker.store_was_away()
    elif is_away == "in the life before":
        driver.before["due"] = AWAY
        await bench.worker.start()
        await bench.probe.wait("store.call_failed", verb="due")
        await bench.worker.stop()
        del driver.before["due"]
    starting = asyncio.create_task(bench.worker.start())
    if is_away == "at the start":
        await tried(driver, "register_worker")
        del driver.before["register_worker"]
    await starting
    await tried(driver, "due", 5)
    assert ("reap" in driver.calls) == (is_away == "never")
    assert {row.id: row.lost_at is None for row in await driver.inner.workers()}[other] == (is_away != "never")
    await bench.worker.stop()


async def test_what_waiting_does_not_mend_is_not_waited_for() -> None:
    driver = Flaky()
    driver.before["register_worker"] = SchemaOutdated("old", fix="migrate")
    bench = Bench([quick], driver=driver, options=PATIENT)
    with pytest.raises(SchemaOutdated):
        await bench.worker.start()


async def test_a_start_that_waits_can_be_told_to_leave() -> None:
    driver = Flaky()
    driver.before["register_worker"] = AWAY
    bench = Bench([quick], driver=driver, options=PATIENT)
    starting = asyncio.create_task(bench.worker.start())
    await tried(driver, "register_worker")
    await bench.worker.stop()
    with pytest.raises(Draining):
        await starting
    assert bench.worker.failure is None
