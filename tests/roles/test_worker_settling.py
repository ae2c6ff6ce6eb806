"""How outcomes are stored: repeated while the lease lasts, and only a refused value is replaced by a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import (
    DriverUnavailable,
    Internal,
    OutlastError,
    RequestInvalid,
    SchemaOutdated,
    SettingsInvalid,
)
from app.domain.outcome import SettleAnswer, Settlement
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import job
from tests.roles.harness import QUICK, Flaky, working

DOWN = DriverUnavailable("the store is down", fix="wait")
SHORT = replace(QUICK, lease=timedelta(seconds=1))
REFUSED = RequestInvalid("PostgreSQL answered 22P05", fix="send a value within the documented limits")


@job("quick.job")
async def quick() -> int:
    return 1


async def test_a_failing_settle_is_repeated_while_the_lease_lasts() -> None:
    driver = Flaky()
    driver.before["settle"] = DOWN
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job")
        await bench.probe.wait("settle.failed", count=2)
        assert (await bench.view(job_id)).state is State.RUNNING
        driver.before.clear()
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "1"


async def test_a_settle_whose_reply_was_lost_counts_once() -> None:
    driver = Flaky()
    driver.after["settle"] = DOWN
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job")
        await bench.probe.wait("settle.failed")
        driver.after.clear()
        await bench.until("attempt.completed", job_id)
        assert not bench.probe.of("lease.lost")
        assert bench.value("outlast_jobs_total", job="quick.job", queue="default", outcome="ok") == 1


async def test_a_settle_that_outlives_its_lease_is_left_to_whoever_takes_over() -> None:
    driver = Flaky()
    async with working(quick, driver=driver, options=SHORT) as bench:
        driver.before.update({"settle": DOWN, "renew": DOWN})
        job_id = await bench.enqueue("quick.job")
        await bench.until("settle.left", job_id)
        driver.before.clear()
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).counters.attempt == 1


async def test_a_value_the_store_refuses_becomes_a_failure_and_its_neighbours_are_stored() -> None:
    class Picky(Flaky):
        async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
            if any("poison" in repr(one) for one in settlements):
                raise RequestInvalid("the statement failed", fix="do not")
            return await self.inner.settle(settlements)

    @job("word.job")
    async def word(ctx: JobContext, text: str) -> str:
        await gate.wait()
        return text

    gate = asyncio.Event()
    async with working(word, driver=Picky()) as bench:
        texts = ["a", "poison", "b", "c"]
        ids = [await bench.enqueue("word.job", {"text": text}, max_attempts=1) for text in texts]
        for job_id in ids:
            await bench.until("attempt.started", job_id)
        gate.set()
        await bench.until("attempt.dead", ids[1])
        error = (await bench.view(ids[1])).error
        assert error is not None
        assert error.code == "RESULT_INVALID"
        for good in (ids[0], ids[2], ids[3]):
            await bench.until("attempt.completed", good)


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        SettingsInvalid("PostgreSQL answered 42501", fix="grant"),
        SchemaOutdated("PostgreSQL answered 42P01", fix="migrate"),
        Internal("PostgreSQL answered XX000", fix="report it"),
        OutlastError("anything", fix="any"),
        TypeError("a fault of our own"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_is_not_about_the_value_is_repeated_and_costs_no_result(error: Exception) -> None:
    driver = Flaky()
    driver.before["settle"] = error
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job", max_attempts=1)
        await bench.probe.wait("settle.failed", count=3, error=type(error).__name__)
        assert (await bench.view(job_id)).state is State.RUNNING
        driver.before.clear()
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.result, view.counters.attempt) == (State.DONE, "1", 1)
        assert not bench.probe.of("settle.refused")


async def test_a_settle_that_took_place_before_a_fault_of_ours_counts_once() -> None:
    driver = Flaky()
    driver.after["settle"] = TypeError("while the answers were read")
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job")
        await bench.probe.wait("settle.failed")
        driver.after.clear()
        await bench.until("attempt.completed", job_id)
        assert not bench.probe.of("lease.lost")


async def test_a_fault_that_follows_one_outcome_does_not_hold_up_its_neighbours() -> None:
    class Picky(Flaky):
        async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
            if is_broken and any("poison" in repr(one) for one in settlements):
                raise TypeError
            return await self.inner.settle(settlements)

    @job("word.job")
    async def word(text: str) -> str:
        await gate.wait()
        return text

    gate, is_broken = asyncio.Event(), True
    async with working(word, driver=Picky(), options=SHORT) as bench:
        ids = [await bench.enqueue("word.job", {"text": text}) for text in ("a", "poison", "b")]
        for job_id in ids:
            await bench.until("attempt.started", job_id)
        gate.set()
        for job_id in (ids[0], ids[2]):
            await bench.until("attempt.completed", job_id)
        assert (await bench.view(ids[1])).state is State.RUNNING
        is_broken = False
        await bench.until("attempt.completed", ids[1])


@pytest.mark.parametrize("then", [REFUSED, SettingsInvalid("PostgreSQL answered 42501", fix="grant")], ids=repr)
async def test_a_failure_stored_in_a_values_place_is_repeated_too(then: Exception) -> None:
    class Refusing(Flaky):
        fallbacks = 0

        async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
            self.calls.append("settle")
            if "RESULT_INVALID" not in repr(settlements):
                raise REFUSED
            self.fallbacks += 1
            if self.fallbacks <= 3:
                raise then
            return await self.inner.settle(settlements)

    driver = Refusing()
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        error = (await bench.view(job_id)).error
        assert error is not None
        assert error.code == "RESULT_INVALID"
        assert len(bench.probe.of("settle.refused")) == 1
        assert driver.calls.count("settle") == 5
        assert bench.value("outlast_jobs_total", job="quick.job", queue="default", outcome="dead") == 1
