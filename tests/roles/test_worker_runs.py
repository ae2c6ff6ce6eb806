"""What becomes of a job that a worker runs: results, retries, timeouts, snoozes, and where it runs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from pydantic import BaseModel

from app.domain.flow import TIERS, FlowQuery
from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.state import DeadReason, State
from app.jobs.client import Client
from app.jobs.context import JobContext
from app.jobs.exits import RetryAfter, Snooze, Terminal
from app.jobs.handle import job
from app.worker.options import QueueLimit
from tests.roles.harness import QUICK, working

SOON = RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), jitter="none")


class Order(BaseModel):
    number: int
    note: str = ""


async def test_a_result_is_stored_as_json() -> None:
    @job("add.job")
    async def add(a: int, b: int) -> int:
        return a + b

    async with working(add) as bench:
        job_id = await bench.enqueue("add.job", {"a": 1, "b": 2})
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.result, view.counters.attempt) == (State.DONE, "3", 1)
        assert bench.value("outlast_jobs_total", job="add.job", queue="default", outcome="ok") == 1
        assert bench.value("outlast_attempt_seconds_count", job="add.job", queue="default") == 1
        assert bench.value("outlast_queue_wait_seconds_count", job="add.job", queue="default") == 1


async def test_the_context_tells_the_attempt_at_hand() -> None:
    seen: list[JobContext] = []

    @job("ctx.job", retry=SOON)
    async def body(ctx: JobContext, payload: Order) -> None:
        seen.append(ctx)
        if ctx.attempt == 1:
            raise ValueError("once")

    async with working(body) as bench:
        job_id = await bench.enqueue("ctx.job", {"number": 7}, tenant="acme", tags=("red",), max_attempts=3)
        await bench.until("attempt.completed", job_id)
    assert [(ctx.id, ctx.attempt, ctx.claim_no, ctx.tenant, ctx.tags) for ctx in seen] == [
        (job_id, 1, 1, "acme", ("red",)),
        (job_id, 2, 2, "acme", ("red",)),
    ]


async def test_failures_are_retried_with_growing_delays_until_the_budget_is_spent() -> None:
    @job("fails.job", retry=RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=30), jitter="none"))
    async def fails() -> None:
        raise ValueError("always")

    async with working(fails) as bench:
        job_id = await bench.enqueue("fails.job", max_attempts=3)
        await bench.until("attempt.dead", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.state_reason, view.counters.attempt) == (
            State.DEAD,
            DeadReason.ATTEMPTS_EXHAUSTED,
            3,
        )
        ledger = await bench.ledger(job_id)
        assert [(one.number, one.outcome, one.counted) for one in ledger] == [
            (1, OutcomeKind.RETRIED, True),
            (2, OutcomeKind.RETRIED, True),
            (3, OutcomeKind.DEAD_LETTERED, True),
        ]
        assert ledger[0].error is not None
        assert (ledger[0].error.type, ledger[0].error.message) == ("ValueError", "always")
        delays = [one.facts["delay_ms"] for one in bench.probe.of("attempt.retried")]
        assert delays == [30, 60]
        assert bench.value("outlast_jobs_total", job="fails.job", queue="default", outcome="failed") == 2
        assert bench.value("outlast_jobs_total", job="fails.job", queue="default", outcome="dead") == 1


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_terminal_error_is_dead_at_once(grouped: bool) -> None:
    @job("gone.job", retry=SOON)
    async def gone() -> None:
        raise ExceptionGroup("both", [ValueError("x"), Terminal("no such order")]) if grouped else Terminal("no")

    async with working(gone) as bench:
        job_id = await bench.enqueue("gone.job")
        await bench.until("attempt.dead", job_id)
        assert (await bench.view(job_id)).state_reason == DeadReason.TERMINAL


async def test_an_error_of_terminal_on_is_dead_at_once() -> None:
    @job("key.job", terminal_on=(KeyError,))
    async def body() -> None:
        raise KeyError("missing")

    async with working(body) as bench:
        job_id = await bench.enqueue("key.job")
        await bench.until("attempt.dead", job_id)
        assert (await bench.view(job_id)).state_reason == DeadReason.TERMINAL


async def test_retry_after_is_counted_and_waits_as_long_as_asked() -> None:
    @job("later.job", retry=SOON)
    async def later(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            raise RetryAfter(timedelta(milliseconds=70))

    async with working(later) as bench:
        job_id = await bench.enqueue("later.job")
        await bench.until("attempt.completed", job_id)
        (retried,) = bench.probe.of("attempt.retried")
        assert retried.facts["delay_ms"] == 70
        assert (await bench.view(job_id)).counters.attempt == 2


async def test_retry_after_an_instant_waits_until_the_stores_clock_is_there() -> None:
    @job("later.job", retry=SOON)
    async def later(ctx: JobContext) -> None:
        raise RetryAfter(datetime.now(UTC) + timedelta(hours=2))

    async with working(later) as bench:
        job_id = await bench.enqueue("later.job")
        await bench.until("attempt.retried", job_id)
        (retried,) = bench.probe.of("attempt.retried")
        assert 7_190_000 < float(str(retried.facts["delay_ms"])) <= 7_200_000


async def test_what_a_body_logs_names_its_job() -> None:
    seen: list[dict[str, object]] = []

    @job("async.job")
    async def as_async() -> None:
        seen.append(structlog.contextvars.get_contextvars())

    @job("sync.job")
    def as_sync() -> None:
        seen.append(structlog.contextvars.get_contextvars())

    async with working(as_async, as_sync) as bench:
        for name in ("async.job", "sync.job"):
            job_id = await bench.enqueue(name)
            await bench.until("attempt.completed", job_id)
            assert seen[-1] == {"job_id": str(job_id), "job": name, "attempt": 1}


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_snooze_runs_again_and_counts_nothing(grouped: bool) -> None:
    async def nap() -> None:
        raise Snooze(timedelta(milliseconds=30))

    @job("nap.job")
    async def body(ctx: JobContext) -> None:
        if ctx.claim_no < 3 and grouped:
            async with asyncio.TaskGroup() as group:
                group.create_task(nap())
        elif ctx.claim_no < 3:
            await nap()

    async with working(body) as bench:
        job_id = await bench.enqueue("nap.job", max_attempts=1)
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.counters.attempt, view.counters.claim_no) == (1, 3)
        assert not await bench.ledger(job_id)
        assert bench.value("outlast_jobs_total", job="nap.job", queue="default", outcome="failed") == 0


async def test_a_payload_the_model_refuses_is_a_terminal_dead_letter() -> None:
    @job("order.job")
    async def body(payload: Order) -> None:
        raise AssertionError("never called")

    async with working(body) as bench:
        job_id = await bench.enqueue("order.job", {"number": "not one"})
        await bench.until("attempt.dead", job_id)
        view = await bench.view(job_id)
        assert view.state_reason == DeadReason.TERMINAL
        assert view.error is not None
        assert view.error.code == "PAYLOAD_INVALID"


async def test_a_sync_body_runs_in_a_thread_with_the_context_it_was_started_in() -> None:
    where: list[str] = []

    @job("sync.job")
    def body(ctx: JobContext, n: int) -> int:
        where.append(threading.current_thread().name)
        contextvars.copy_context()
        return n * 2

    async with working(body) as bench:
        job_id = await bench.enqueue("sync.job", {"n": 21})
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "42"
    assert where[0].startswith("outlast.body")


async def test_queue_shares_and_concurrency_bound_what_runs_at_once() -> None:
    release = asyncio.Event()
    running: dict[str, int] = {"a": 0, "b": 0}
    started = asyncio.Semaphore(0)

    @job("hold.job")
    async def hold(ctx: JobContext) -> None:
        running[ctx.queue] += 1
        started.release()
        await release.wait()

    options = replace(QUICK, queues=(QueueLimit(queue="a", limit=2), QueueLimit(queue="b")), concurrency=5)
    async with working(hold, options=options) as bench:
        jobs = [await bench.enqueue("hold.job", queue=queue) for queue in "aaaabbbb"]
        for _ in range(5):
            await asyncio.wait_for(started.acquire(), 5)
        assert running == {"a": 2, "b": 3}
        assert (await bench.driver.stats()).by_state[State.READY] == 3
        release.set()
        for job_id in jobs:
            await bench.until("attempt.completed", job_id)
    assert running == {"a": 4, "b": 4}


async def test_bodies_enqueue_with_the_workers_client() -> None:
    @job("child.job")
    async def child(n: int) -> int:
        return n

    @job("parent.job")
    async def parent(ctx: JobContext) -> str:
        return str((await ctx.enqueue(child, {"n": 3})).id)

    async with working(child, parent) as bench:
        bench.worker._kit = replace(bench.worker._kit, client=Client(bench.driver))
        await bench.worker.stop()
        await bench.worker.start()
        job_id = await bench.enqueue("parent.job")
        await bench.until("attempt.completed", job_id)
        await bench.probe.wait("attempt.completed", job="child.job")


async def test_a_worker_that_leaves_has_added_what_it_counted() -> None:
    @job("count.job")
    async def count() -> None:
        pass

    async with working(count) as bench:
        job_id = await bench.enqueue("count.job", {})
        await bench.until("attempt.completed", job_id)
        driver, since = bench.driver, (await bench.view(job_id)).created_at - timedelta(hours=2)
        await bench.worker.stop()
        (kind,) = await driver.flow_kinds(FlowQuery(tier=TIERS[0], since=since))
    assert (kind.name, kind.tally.counts[0], sum(kind.tally.runs)) == ("count.job", 1, 1)
