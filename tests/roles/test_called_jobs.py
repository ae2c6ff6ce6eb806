"""A call that a job answers which was there before: its end is met soon, though nobody is told of it."""

from __future__ import annotations

import asyncio

from app.jobs.client import Client, use_client
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.worker.options import WorkerOptions
from tests.roles.harness import working


async def test_a_run_goes_on_soon_after_a_job_that_was_there_has_ended() -> None:
    may_end = asyncio.Event()

    @job("report.job", idempotency_key="today")
    async def report() -> str:
        await may_end.wait()
        return "made"

    @job("mail.job")
    async def mail(ctx: JobContext) -> str:
        return await ctx.step.call("report", report, {})

    async with working(report, mail, options=WorkerOptions(concurrency=2)) as bench:
        with use_client(Client(bench.driver)):
            there = (await report.enqueue({})).id
            await bench.until("attempt.started", there)
            job_id = (await mail.enqueue({})).id
        await bench.until("attempt.suspended", job_id)
        run = await bench.driver.run(job_id)
        assert run is not None
        assert run.history.waits[0].child_id == there
        loop = asyncio.get_running_loop()
        began = loop.time()
        may_end.set()
        await bench.probe.wait("attempt.completed", job_id=str(job_id), within=15)
        assert loop.time() - began < 10, "the sweep over calls comes after half a minute"
        assert (await bench.view(job_id)).result == '"made"'
