"""A worker purges by itself: what is over goes, each job type by its own time, and a drain waits for one step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.clock import ManualClock
from app.domain.job import JobId
from app.domain.retention import Chore, Retention, TableRule, Tidied
from app.drivers.memory.driver import MemoryDriver
from app.jobs import Registry, job, purge
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.worker.worker import Worker
from tests.roles.harness import QUICK, Flaky
from tests.support.drivers import start_time
from tests.support.processes import eventually

DAY = timedelta(days=1)
SOON = timedelta(milliseconds=20)
OPTIONS = replace(QUICK, purge_every=SOON, lease=timedelta(days=100))


@job("quick.job")
async def quick() -> int:
    return 1


@job("quick.kept", retention=60 * DAY)
async def kept() -> int:
    return 1


class House:
    """A worker over a store whose days pass when the test says."""

    def __init__(self, store: Flaky | None = None, *, tables: tuple[TableRule, ...] = ()) -> None:
        self.clock = ManualClock(start_time())
        self.store = store or Flaky()
        self.store.inner = MemoryDriver(self.clock)
        self.telemetry = Telemetry(metrics=Metrics())
        self.probe = Probe(self.telemetry)
        self.worker = Worker(
            driver=self.store,
            registry=Registry([quick, kept, *tables]),
            options=OPTIONS,
            telemetry=self.telemetry,
            roll=lambda: 0.5,
        )

    async def done(self, name: str) -> JobId:
        """Give a job that has run."""
        from tests.support.drivers import new_job  # noqa: PLC0415 - a name of its own queue

        job_id = (await self.store.inner.enqueue(new_job(name, queue="default"))).id
        await self.probe.wait("attempt.completed", job_id=str(job_id))
        return job_id

    async def is_gone(self, job_id: JobId) -> bool:
        return await self.store.inner.describe(job_id) is None

    def value(self, metric: str, kind: str) -> float:
        return self.telemetry.metrics.registry.get_sample_value(metric, {"kind": kind}) or 0.0


@asynccontextmanager
async def living(house: House) -> AsyncIterator[House]:
    await house.store.inner.open()
    await house.worker.start()
    try:
        yield house
    finally:
        await house.worker.stop()


async def test_ended_jobs_go_when_their_retention_is_over_each_by_its_types_own() -> None:
    async with living(House()) as house:
        usual, long = await house.done("quick.job"), await house.done("quick.kept")
        house.clock.advance(8 * DAY)
        await eventually(lambda: house.is_gone(usual), "the usual one is purged")
        assert not await house.is_gone(long)
        house.clock.advance(53 * DAY)
        await eventually(lambda: house.is_gone(long), "so is the one that is kept for long")
        await house.probe.wait("purge.round_ended", kind="jobs", count=2)
    assert house.value("outlast_purged_rows_total", "jobs") == 2


async def test_how_long_ago_the_last_round_began_is_shown() -> None:
    async with living(House()) as house:
        await eventually(lambda: house.store.calls.count("tidy") >= len(Chore), "every kind is looked at")
        house.store.before["tidy"] = RuntimeError("no")
        house.clock.advance(DAY)
        await house.probe.wait("purge.failed", kind="jobs")
    assert house.value("outlast_purge_age_seconds", "jobs") < DAY.total_seconds()


async def test_a_step_that_fails_is_said_and_the_other_kinds_go_on() -> None:
    class NoKeys(Flaky):
        async def tidy(self, chore: Chore, *args: Any, **options: Any) -> Tidied:
            if chore is Chore.KEYS:
                raise RuntimeError("no")
            return await self.inner.tidy(chore, *args, **options)

    async with living(House(NoKeys())) as house:
        job_id = await house.done("quick.job")
        house.clock.advance(8 * DAY)
        await eventually(lambda: house.is_gone(job_id), "jobs are purged all the same")
        await house.probe.wait("purge.failed", kind="keys")


async def test_without_the_job_types_nothing_is_judged() -> None:
    async with living(House()) as house:
        job_id = await house.done("quick.job")
        house.store.before["job_types"] = RuntimeError("no")
        await house.probe.wait("purge.failed", kind="jobs")
        house.store.calls.clear()
        house.clock.advance(8 * DAY)
        await house.probe.wait("purge.failed", kind="jobs", count=3)
        assert "tidy" not in house.store.calls
        assert not await house.is_gone(job_id)


async def test_tables_of_the_modules_are_purged_with_the_rest() -> None:
    rules: list[TableRule] = []

    class Tables(Flaky):
        async def tidy_table(self, rule: TableRule, **_: Any) -> Tidied:
            rules.append(rule)
            return Tidied(3, is_over=True, behind=timedelta())

    visits = purge("visits", older_than=DAY)
    store = Tables()
    async with living(House(store, tables=(visits,))) as house:
        await house.probe.wait("purge.round_ended", kind="table visits")
    assert set(rules) == {visits}
    assert house.value("outlast_purged_rows_total", "table visits") >= 3


class Endless(Flaky):
    """A store in which there is always more to delete."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.is_in_step = asyncio.Event()
        self.may_end = asyncio.Event()

    async def tidy(self, chore: Chore, *_: Any, **__: Any) -> Tidied:
        self.steps += 1
        self.is_in_step.set()
        await self.may_end.wait()
        return Tidied(1000, is_over=False, behind=timedelta())


async def test_a_drain_waits_for_the_step_in_flight_and_takes_no_other() -> None:
    store = Endless()
    async with living(House(store)) as house:
        await store.is_in_step.wait()
        stopping = asyncio.create_task(house.worker.stop())
        await asyncio.sleep(0)
        assert store.steps == 1
        store.may_end.set()
        await stopping
        assert store.steps == 1


async def test_a_backlog_does_not_keep_a_drain_waiting() -> None:
    store = Endless()
    store.may_end.set()
    async with living(House(store)) as house:
        await eventually(lambda: store.steps >= 3, "it deletes on and on")
        async with asyncio.timeout(5):
            await house.worker.stop()


@pytest.mark.parametrize("retention", [Retention(), Retention(done=DAY)])
async def test_retention_of_the_settings_is_what_is_asked_for(retention: Retention) -> None:
    asked: list[Retention] = []

    class Noted(Flaky):
        async def tidy(self, chore: Chore, retention: Retention, **options: Any) -> Tidied:
            asked.append(retention)
            return await self.inner.tidy(chore, retention, **options)

    store = Noted()
    house = House(store)
    house.worker = Worker(
        driver=store,
        registry=Registry([quick, kept]),
        options=replace(OPTIONS, retention=retention),
        telemetry=house.telemetry,
        roll=lambda: 0.5,
    )
    async with living(house):
        await eventually(lambda: bool(asked), "it asked")
    assert asked[0] == replace(retention, by_name={"quick.kept": 60 * DAY})
