"""Runs with steps over PostgreSQL: the whole way through, and transactions, which no other driver has."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.retry import RetryPolicy
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from tests.roles.test_steps_runs import event
from tests.roles.test_worker_postgres import at

pytestmark = pytest.mark.postgres

TICK = timedelta(milliseconds=30)
SOON = RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), jitter="none")


@job("child.job", retry=RetryPolicy(max_attempts=1))
async def child(number: int) -> tuple[int, str]:
    if number < 0:
        raise ValueError("negative")
    return (number * 2, "doubled")


async def test_a_run_sleeps_waits_calls_and_gathers(database_url: str) -> None:
    calls: list[str] = []

    @job("whole.job")
    async def body(ctx: JobContext, number: int) -> list[object]:
        ctx.log("begun")
        loaded = await ctx.step.run("load", load, number)
        await ctx.step.sleep("nap", TICK)
        both = await ctx.step.gather(
            ctx.step.call("one", child, {"number": loaded}),
            ctx.step.wait_for_event("approval", "order.approved", key=str(number), timeout=timedelta(hours=1)),
        )
        ctx.progress(1.0, "done")
        return [*both, ctx.claim_no > 2]

    async def load(number: int) -> int:
        calls.append("load")
        return number

    async with at(database_url, body, child) as bench:
        job_id = await bench.enqueue("whole.job", {"number": 7})
        await bench.until("attempt.suspended", job_id, count=2)
        await bench.driver.emit(event("order.approved", "7", '{"by":"ann"}'))
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.result, calls) == ('[[14,"doubled"],{"by":"ann"},true]', ["load"])
        assert view.counters.attempt == 1
        run = await bench.driver.run(job_id)
        assert run is not None
        assert [step.name for step in run.history.steps if step.name != "approval"] == ["load", "nap", "one"]
        assert [line.message for line in run.lines] == ["begun"] * view.counters.claim_no
        assert run.progress is not None
        assert run.history.waits == ()


async def test_a_child_that_fails_is_made_anew_by_the_next_attempt(database_url: str) -> None:
    @job("parent.job", retry=SOON)
    async def parent(ctx: JobContext) -> object:
        return await ctx.step.call("one", child, {"number": -1 if ctx.attempt == 1 else 1})

    async with at(database_url, parent, child) as bench:
        job_id = await bench.enqueue("parent.job", max_attempts=3)
        await bench.until("attempt.completed", job_id)
        (failed,) = await bench.ledger(job_id)
        assert failed.error is not None
        assert (failed.error.code, failed.step) == ("CHILD_FAILED", "one")


async def test_a_transaction_and_its_step_commit_together_and_once(database_url: str) -> None:
    runs: list[int] = []

    @job("book.job", retry=SOON)
    async def book(ctx: JobContext, table: str) -> int:
        async with ctx.step.transaction("book") as session:
            runs.append(ctx.claim_no)
            await session.execute(text(f"insert into public.{table} values (1)"))
            if ctx.attempt == 1:
                raise ValueError("no room")
        if ctx.attempt == 2:
            raise ConnectionError("after the commit")
        return await ctx.step.run("after", lambda: ctx.attempt)

    async with at(database_url, book) as bench:
        engine = create_async_engine(database_url)
        async with engine.begin() as connection:
            await connection.execute(text("create table public.booking (n int)"))
        job_id = await bench.enqueue("book.job", {"table": "booking"}, max_attempts=3)
        await bench.until("attempt.completed", job_id)
        async with engine.begin() as connection:
            rows = (await connection.execute(text("select count(*) from public.booking"))).scalar_one()
        await engine.dispose()
        assert (rows, runs, (await bench.view(job_id)).result) == (1, [1, 2], "3")


@pytest.mark.parametrize(
    ("held", "error"),
    [
        ("lock table public.booking in exclusive mode", ("DBAPIError", None)),
        ("select from outlast.running for update", ("StoreBusy", "DRIVER_UNAVAILABLE")),
    ],
    ids=["what it writes to", "its claim"],
)
async def test_a_transaction_that_others_are_in_the_way_of_has_no_outage(
    database_url: str, held: str, error: tuple[str, str | None]
) -> None:
    """The database was there: the attempt is a failure, as with any error of its body."""
    begun, locked, met = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @job("book.job", retry=RetryPolicy(max_attempts=1))
    async def book(ctx: JobContext) -> None:
        begun.set()
        await locked.wait()
        try:
            async with ctx.step.transaction("book") as session:
                await session.execute(text("set local lock_timeout = '20ms'"))
                await session.execute(text("insert into public.booking values (1)"))
        finally:
            met.set()

    async with at(database_url, book) as bench:
        engine = create_async_engine(database_url)
        async with engine.begin() as connection:
            await connection.execute(text("create table public.booking (n int)"))
        job_id = await bench.enqueue("book.job", max_attempts=1)
        await begun.wait()
        async with engine.begin() as connection:
            await connection.execute(text(held))
            locked.set()
            await met.wait()
        await bench.until("attempt.dead", job_id)
        await engine.dispose()
        (attempt,) = await bench.ledger(job_id)
        assert (attempt.outcome.value, attempt.cause, attempt.counted) == ("dead_lettered", "error", True)
        assert attempt.error is not None
        assert (attempt.error.type, attempt.error.code) == error


async def test_a_run_interrupted_by_a_drain_goes_on_in_the_next_worker(database_url: str) -> None:
    reached = asyncio.Event()
    calls: list[str] = []

    @job("drained.job")
    async def body(ctx: JobContext) -> list[str]:
        first = await ctx.step.run("first", done, "first")
        second = await ctx.step.run("second", told, ctx)
        return [first, second, await ctx.step.run("third", done, "third")]

    async def done(name: str) -> str:
        calls.append(name)
        return name

    async def told(ctx: JobContext) -> str:
        calls.append("second")
        reached.set()
        await ctx.signal.wait()
        return "second"

    async with at(database_url, body) as bench:
        job_id = await bench.enqueue("drained.job")
        await reached.wait()
        bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=5.0))
        await bench.worker.stop()
        (cut,) = await bench.ledger(job_id)
        assert (cut.outcome.value, cut.step) == ("interrupted", "third")
    async with at(database_url, body) as bench:
        await bench.until("attempt.completed", job_id)
        assert calls == ["first", "second", "third"]


async def test_other_code_is_held_and_released_by_rolling_back(database_url: str) -> None:
    @job("ship.job")
    async def old(ctx: JobContext) -> str:
        await ctx.step.run("pack", str)
        await ctx.step.sleep("wait", timedelta(milliseconds=300))
        return "old"

    @job("ship.job")
    async def new(ctx: JobContext) -> str:
        return await ctx.step.run("weigh", lambda: "new")

    async with at(database_url, old, version="1") as bench:
        job_id = await bench.enqueue("ship.job")
        await bench.until("attempt.suspended", job_id)
    async with at(database_url, new, version="2") as bench:
        await bench.until("attempt.held", job_id)
        view = await bench.view(job_id)
        assert (view.state, "'weigh' as number 0" in str(view.state_reason)) == (State.HELD, True)
    async with at(database_url, old, version="1") as bench:
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"old"'


async def test_other_code_hands_back_to_the_code_that_lives(database_url: str) -> None:
    @job("ship.job")
    async def old(ctx: JobContext) -> str:
        await ctx.step.run("pack", str)
        await ctx.step.sleep("wait", timedelta(milliseconds=300))
        return "old"

    @job("ship.job")
    async def new(ctx: JobContext) -> str:
        return await ctx.step.run("weigh", lambda: "new")

    async with at(database_url, old, version="1") as bench:
        job_id = await bench.enqueue("ship.job")
        await bench.until("attempt.suspended", job_id)
    async with at(database_url, new, version="2") as newer:
        await newer.until("attempt.held", job_id)
        async with at(database_url, old, version="1") as older:
            await older.until("attempt.completed", job_id)
            second = await older.enqueue("ship.job")
            while (await older.view(second)).state not in {State.DONE, State.SUSPENDED}:
                await asyncio.sleep(0.05)
        assert (await newer.view(job_id)).result == '"old"'
