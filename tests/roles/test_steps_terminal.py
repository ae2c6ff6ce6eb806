"""Failures of steps that the next attempt would only meet again: one attempt, and what a retry by hand does then."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from app.domain.retry import RetryPolicy
from app.domain.state import DeadReason, State
from app.jobs.client import Client, use_client
from app.jobs.context import JobContext
from app.jobs.handle import job
from tests.roles.harness import working
from tests.roles.test_steps_runs import TICK, event

ONCE = RetryPolicy(max_attempts=1)


async def test_a_required_event_that_did_not_come_is_the_end_and_a_retry_waits_anew() -> None:
    @job("order.job")
    async def order(ctx: JobContext) -> object:
        await ctx.step.run("load", int)
        return await ctx.step.wait_for_event("paid", "order.paid", key="7", timeout=TICK, required=True)

    async with working(order) as bench:
        job_id = await bench.enqueue("order.job", max_attempts=5)
        await bench.until("attempt.dead", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.state_reason, view.counters.attempt) == (State.DEAD, DeadReason.TERMINAL, 1)
        assert view.error is not None
        assert view.error.code == "STEP_TIMEOUT"
        await bench.driver.retry(job_id)
        await bench.until("attempt.dead", job_id, count=2)
        assert (await bench.view(job_id)).counters.attempt == 1
        await bench.driver.emit(event("order.paid", "7", '"late"'))
        await bench.driver.retry(job_id)
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"late"'


async def test_a_step_asked_for_where_it_cannot_be_is_the_end() -> None:
    @job("order.job")
    async def order(ctx: JobContext) -> None:
        await asyncio.gather(ctx.step.sleep("nap", timedelta(hours=1)))

    async with working(order) as bench:
        job_id = await bench.enqueue("order.job", max_attempts=5)
        await bench.until("attempt.dead", job_id)
        (attempt,) = await bench.ledger(job_id)
        assert attempt.error is not None
        assert (attempt.error.code, (await bench.view(job_id)).state_reason) == ("REQUEST_INVALID", DeadReason.TERMINAL)


async def test_jobs_that_call_each_other_in_a_circle_end() -> None:
    @job("a.job", idempotency_key="a", retry=ONCE)
    async def a(ctx: JobContext) -> None:
        await ctx.step.call("b", b, {})

    @job("b.job", idempotency_key="b", retry=ONCE)
    async def b(ctx: JobContext) -> None:
        await ctx.step.call("c", c, {})

    @job("c.job", idempotency_key="c", retry=RetryPolicy(max_attempts=5))
    async def c(ctx: JobContext) -> None:
        await ctx.step.call("a", a, {})

    async with working(a, b, c) as bench:
        with use_client(Client(bench.driver)):
            job_id = (await a.enqueue({})).id
        await bench.until("attempt.dead", job_id)
        run = await bench.driver.run(job_id)
        assert run is not None
        (called,) = run.children
        run = await bench.driver.run(called)
        assert run is not None
        closes = await bench.view(run.children[0])
        assert closes.error is not None
        assert (closes.error.code, closes.state_reason, closes.counters.attempt) == ("JOB_DUPLICATE", "terminal", 1)
        assert str(job_id) in closes.error.message
        for one in (job_id, called):
            view = await bench.view(one)
            assert view.error is not None
            assert view.error.code == "CHILD_FAILED"
