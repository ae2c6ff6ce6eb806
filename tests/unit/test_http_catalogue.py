from __future__ import annotations

import asyncio

import pytest

from app.control.catalogue import TypeCatalogue
from app.domain.errors import NotFound
from app.domain.snapshot import JobTypeDoc
from app.drivers.memory.driver import MemoryDriver


class Counted(MemoryDriver):
    """A store that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def job_types(self) -> tuple[JobTypeDoc, ...]:
        self.asked += 1
        await self.gate.wait()
        return await super().job_types()


class Time:
    """Seconds that pass when told to."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def doc(name: str, version: str = "1") -> JobTypeDoc:
    return JobTypeDoc(name=name, code_version=version, document="{}")


async def test_a_known_type_is_remembered_until_its_time_is_over() -> None:
    driver, time = Counted(), Time()
    catalogue = TypeCatalogue(driver, monotonic=time, ttl_seconds=5)
    await driver.publish_job_types([doc("a")])
    assert (await catalogue.describe("a")).code_version == "1"
    await driver.publish_job_types([doc("a", "2")])
    time.seconds = 4.9
    assert (await catalogue.describe("a")).code_version == "1"
    time.seconds = 5.0
    assert (await catalogue.describe("a")).code_version == "2"
    assert driver.asked == 2


async def test_an_unknown_type_is_looked_up_each_time() -> None:
    driver, time = Counted(), Time()
    catalogue = TypeCatalogue(driver, monotonic=time)
    assert await catalogue.find("a") is None
    with pytest.raises(NotFound):
        await catalogue.describe("a")
    await driver.publish_job_types([doc("a")])
    assert await catalogue.find("a") is not None
    assert driver.asked == 3


async def test_a_crowd_that_asks_while_a_reading_waits_shares_the_next() -> None:
    driver, time = Counted(), Time()
    catalogue = TypeCatalogue(driver, monotonic=time)
    driver.gate.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(catalogue.find("a"))
        while driver.asked == 0:
            await asyncio.sleep(0)
        time.seconds = 1.0  # the crowd asks after the first reading began
        await driver.publish_job_types([doc("a")])
        crowd = [group.create_task(catalogue.find("a")) for _ in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
        time.seconds = 2.0
        driver.gate.set()
    assert all(task.result() is not None for task in crowd)
    assert first.result() is not None
    assert driver.asked == 2


async def test_a_reading_that_failed_is_repeated() -> None:
    driver = Counted()
    catalogue = TypeCatalogue(driver)
    await driver.publish_job_types([doc("a")])
    await driver.close()
    with pytest.raises(Exception, match="DRIVER_UNAVAILABLE"):
        await catalogue.find("a")
    await driver.open()
    assert await catalogue.find("a") is not None
