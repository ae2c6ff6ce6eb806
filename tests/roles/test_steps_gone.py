"""Code that does without steps by now, and meets a run that has recorded some: held, however the run came back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.domain.job import JobId
from app.domain.retry import RetryPolicy
from app.domain.state import State
from app.drivers.memory.driver import MemoryDriver
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from tests.roles.harness import QUICK, Flaky, working

SOON = RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=300), jitter="none")
NEW = replace(QUICK, code_version="2.0.0", host="host-b")


@job("ship.job", retry=SOON)
async def with_steps(ctx: JobContext) -> None:
    await ctx.step.run("pack", str)
    raise ConnectionError("away")


@job("ship.job", retry=SOON)
async def on_the_loop() -> str:
    return "without"


@job("ship.job", retry=SOON)
def in_a_thread() -> str:
    return "without"


either = pytest.mark.parametrize("body", [on_the_loop, in_a_thread], ids=["async def", "def"])


async def failed_once(driver: MemoryDriver) -> JobId:
    """Leave a job that has recorded a step and failed, and its worker gone."""
    async with working(with_steps, driver=driver) as bench:
        job_id = await bench.enqueue("ship.job", max_attempts=3)
        await bench.until("attempt.retried", job_id)
    return job_id


@either
async def test_after_a_failure(body: JobHandle[Any, Any]) -> None:
    driver = MemoryDriver()
    job_id = await failed_once(driver)
    async with working(body, driver=driver, options=NEW) as bench:
        await bench.until("attempt.held", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.state_reason) == (
            State.HELD,
            "the code never asks for run step 'pack', number 0, which is recorded by code 1.0.0",
        )


@either
async def test_in_a_fork(body: JobHandle[Any, Any]) -> None:
    driver = MemoryDriver()
    fork = JobId(uuid4())
    await driver.fork(await failed_once(driver), new_id=fork)
    async with working(body, driver=driver, options=NEW) as bench:
        await bench.until("attempt.held", fork)


@either
async def test_a_job_that_has_recorded_none_is_done(body: JobHandle[Any, Any]) -> None:
    driver = Flaky()

    @job("ship.job", retry=SOON)
    async def fails() -> None:
        raise ConnectionError("away")

    async with working(fails, driver=driver) as bench:
        job_id = await bench.enqueue("ship.job", max_attempts=3)
        await bench.until("attempt.retried", job_id)
        assert "history" not in driver.calls, "a first attempt without steps asks for nothing"
    async with working(body, driver=driver, options=NEW) as bench:
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"without"'
        assert driver.calls.count("history") == 1
