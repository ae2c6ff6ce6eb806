"""What a body leaves running when it ends: it does nothing for the run any more."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.domain.errors import RequestInvalid
from app.domain.retry import RetryPolicy
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.steps.api import Steps
from tests.roles.harness import working

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("ends", ["returns", "fails", "waits"])
async def test_a_task_that_outlives_its_body_begins_no_step(ends: str) -> None:
    go_on = asyncio.Event()
    told: list[BaseException] = []
    calls: list[int] = []

    async def outlives(steps: Steps) -> None:
        await go_on.wait()
        try:
            await steps.run("late", calls.append, 1)
        except RequestInvalid as error:
            told.append(error)

    @job("left.job", retry=RetryPolicy(max_attempts=1))
    async def body(ctx: JobContext) -> None:
        await ctx.step.run("first", lambda: 1)
        left.append(asyncio.create_task(outlives(ctx.step)))
        if ends == "fails":
            raise ValueError("the body fails")
        if ends == "waits":
            await ctx.step.sleep("nap", HOUR)

    left: list[asyncio.Task[None]] = []
    async with working(body) as bench:
        job_id = await bench.enqueue("left.job", max_attempts=1)
        event = {"returns": "attempt.completed", "fails": "attempt.dead", "waits": "attempt.suspended"}[ends]
        await bench.until(event, job_id)
        go_on.set()
        await left[0]
    assert calls == []
    assert "has ended" in str(told[0])
