"""Runs that meet other code than recorded them, and payloads that other models refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from app.domain.errors import DriverUnavailable
from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.state import DeadReason, State
from app.domain.step import RetryMode
from app.drivers.memory.driver import MemoryDriver
from app.jobs.context import JobContext
from app.jobs.exits import Snooze
from app.jobs.handle import JobHandle, job
from tests.roles.harness import QUICK, Flaky, working

HOUR = timedelta(hours=1)
OLD = replace(QUICK, code_version="1.0.0")
NEW = replace(QUICK, code_version="2.0.0", host="host-b")


@job("ship.job", retry=RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), jitter="none"))
async def ship(ctx: JobContext) -> str:
    await ctx.step.run("pack", str)
    await ctx.step.sleep("wait", timedelta(milliseconds=100))
    return await ctx.step.run("send", lambda: "old")


def changed() -> JobHandle[Any, Any]:
    @job("ship.job")
    async def body(ctx: JobContext) -> str:
        await ctx.step.run("weigh", str)
        await ctx.step.run("pack", str)
        await ctx.step.sleep("wait", timedelta(milliseconds=100))
        return await ctx.step.run("send", lambda: "new")

    return body


async def suspended(driver: MemoryDriver) -> Any:
    """Leave a job of the old code suspended, and its worker gone."""
    async with working(ship, driver=driver, options=OLD) as bench:
        job_id = await bench.enqueue("ship.job", max_attempts=3)
        await bench.until("attempt.suspended", job_id)
    return job_id


async def test_a_changed_order_is_held_with_the_exact_step_and_released_by_rolling_back() -> None:
    driver = MemoryDriver()
    job_id = await suspended(driver)
    async with working(changed(), driver=driver, options=NEW) as bench:
        await bench.until("attempt.held", job_id)
        view = await bench.view(job_id)
        assert view.state is State.HELD
        assert view.state_reason is not None
        assert "'weigh' as number 0" in view.state_reason
        assert "'pack', number 0" in view.state_reason
        assert "1.0.0" in view.state_reason
        (attempt,) = await bench.ledger(job_id)
        assert (attempt.outcome, attempt.counted, attempt.step) == (OutcomeKind.HELD, False, "weigh")
        assert attempt.error is not None
        assert attempt.error.code == "REPLAY_DIVERGED"
        assert bench.probe.of("attempt.held")[0].facts["recorded_by"] == "1.0.0"
    async with working(ship, driver=driver, options=OLD) as bench:
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.result, view.counters.attempt) == ('"old"', 1)


async def test_a_changed_order_is_handed_back_while_the_old_code_lives() -> None:
    driver = MemoryDriver()
    job_id = await suspended(driver)
    async with working(changed(), driver=driver, options=NEW) as new:
        await new.until("attempt.held", job_id)
        async with working(ship, driver=driver, options=OLD) as old:
            await old.until("attempt.completed", job_id)
        second = await new.enqueue("ship.job")
        await new.until("attempt.completed", second)
        assert (await new.view(second)).result == '"new"'
        assert (await new.view(job_id)).result == '"old"'


async def test_a_held_job_is_retried_fresh_by_the_new_code() -> None:
    driver = MemoryDriver()
    job_id = await suspended(driver)
    async with working(changed(), driver=driver, options=NEW) as bench:
        await bench.until("attempt.held", job_id)
        await driver.retry(job_id, mode=RetryMode.FRESH)
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"new"'


async def test_code_that_asks_for_nothing_any_more_is_found_when_it_returns() -> None:
    @job("ship.job")
    async def emptied() -> str:
        return "nothing to do"

    driver = MemoryDriver()
    job_id = await suspended(driver)
    async with working(emptied, driver=driver, options=NEW) as bench:
        await bench.until("attempt.held", job_id)
        assert "never asks for run step 'pack'" in ((await bench.view(job_id)).state_reason or "")


async def test_the_same_code_that_asks_for_other_steps_is_held_for_an_operator() -> None:
    @job("odd.job")
    async def odd(ctx: JobContext) -> None:
        await ctx.step.run(f"at-{ctx.claim_no}", str)
        await ctx.step.sleep("nap", timedelta(milliseconds=20))

    async with working(odd) as bench:
        job_id = await bench.enqueue("odd.job")
        await bench.until("attempt.held", job_id)
        assert (await bench.view(job_id)).state is State.HELD
        assert bench.probe.of("attempt.held")[0].facts["recorded_by"] is None


class Narrow(BaseModel):
    number: int


class Wide(BaseModel):
    number: int
    shop: str


async def test_a_payload_that_an_older_model_refuses_goes_to_the_newer_code_that_sent_it() -> None:
    driver = MemoryDriver()

    @job("order.job")
    async def old(payload: Wide) -> str:
        return payload.shop

    @job("order.job")
    async def new(payload: Narrow) -> str:
        return "narrow"

    async with working(old, driver=driver, options=OLD) as older, working(new, driver=driver, options=NEW) as newer:
        job_id = await older.enqueue("order.job", {"number": 1})
        await newer.until("attempt.completed", job_id)
        assert (await newer.view(job_id)).result == '"narrow"'
        assert [attempt.counted for attempt in await newer.ledger(job_id)] in ([], [False])


async def test_a_payload_that_the_only_code_refuses_is_dead_at_once() -> None:
    @job("order.job")
    async def body(payload: Wide) -> str:
        raise AssertionError("never called")

    async with working(body) as bench:
        job_id = await bench.enqueue("order.job", {"number": 1}, max_attempts=25)
        await bench.until("attempt.dead", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.state_reason) == (State.DEAD, DeadReason.TERMINAL)
        assert view.error is not None
        assert view.error.code == "PAYLOAD_INVALID"
        assert bench.value("outlast_jobs_total", job="order.job", queue="default", outcome="dead") == 1


async def test_a_fresh_retry_cancels_the_child_that_the_old_run_waits_for() -> None:
    @job("child.job", queue="slow")
    async def child(number: int) -> int:
        return number

    @job("parent.job")
    async def old(ctx: JobContext) -> object:
        return await ctx.step.gather(
            ctx.step.call("one", child, {"number": 1}), ctx.step.sleep("nap", timedelta(milliseconds=100))
        )

    @job("parent.job")
    async def new(ctx: JobContext) -> int:
        return await ctx.step.call("other", child, {"number": 2}, queue="default")

    driver = MemoryDriver()
    async with working(old, child, driver=driver, options=OLD) as bench:
        job_id = await bench.enqueue("parent.job")
        await bench.until("attempt.suspended", job_id)
    async with working(new, child, driver=driver, options=NEW) as bench:
        await bench.until("attempt.held", job_id)
        run = await driver.run(job_id)
        assert run is not None
        (first,) = run.children
        assert (await bench.view(first)).state is State.READY
        await driver.retry(job_id, mode=RetryMode.FRESH)
        assert (await bench.view(first)).state is State.CANCELLED
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "2"


async def test_a_job_without_steps_that_gave_its_worker_back_completes_although_its_run_cannot_be_read() -> None:
    @job("snooze.job")
    async def body(ctx: JobContext) -> int:
        if ctx.claim_no == 1:
            raise Snooze(timedelta(milliseconds=20))
        return ctx.claim_no

    driver = Flaky()
    driver.before["history"] = DriverUnavailable("away", fix="none")
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("snooze.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "2"
