"""The worker over PostgreSQL: what the memory driver cannot show, its connections, wake-ups and outages among it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.cli.devdb import DevPostgres
from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.lifecycle.drain import DrainNotice
from tests.roles.harness import QUICK, Bench
from tests.support.postgres import migrate

pytestmark = pytest.mark.postgres

FAST = replace(QUICK, lease=timedelta(seconds=2), heartbeat=timedelta(milliseconds=300), poll=None)


@asynccontextmanager
async def at(
    url: str, *handles: JobHandle[Any, Any], version: str = "1.0.0", concurrency: int = 10
) -> AsyncIterator[Bench]:
    from app.drivers.postgres.database import create_engine  # noqa: PLC0415 - only when PostgreSQL is asked for
    from app.drivers.postgres.driver import PostgresDriver  # noqa: PLC0415 - same

    engine = create_engine(url, pool_size=5)
    options = replace(FAST, code_version=version, concurrency=concurrency)
    bench = Bench(handles, driver=PostgresDriver(engine), options=options)
    await bench.driver.open()
    await bench.worker.start()
    try:
        yield bench
    finally:
        await bench.worker.stop()
        await bench.driver.close()
        await engine.dispose()


@job("add.job")
async def add(a: int, b: int) -> int:
    return a + b


@job("waits.job")
async def waits(ctx: JobContext) -> None:
    await ctx.signal.wait()
    ctx.signal.raise_if_aborted()


async def test_jobs_run_retry_and_end(database_url: str) -> None:
    @job("fails.job", retry=RetryPolicy(max_attempts=2, backoff=timedelta(milliseconds=20), jitter="none"))
    async def fails() -> None:
        raise ValueError("always")

    async with at(database_url, add, fails) as bench:
        good = [await bench.enqueue("add.job", {"a": n, "b": 1}) for n in range(40)]
        bad = await bench.enqueue("fails.job", max_attempts=2)
        for job_id in good:
            await bench.until("attempt.completed", job_id)
        await bench.until("attempt.dead", bad)
        assert (await bench.view(good[7])).result == "8"
        assert [one.outcome for one in await bench.ledger(bad)] == [OutcomeKind.RETRIED, OutcomeKind.DEAD_LETTERED]


async def test_a_wake_up_starts_a_job_sooner_than_any_poll(database_url: str) -> None:
    async with at(database_url, add) as bench:
        await bench.probe.wait("listener.restored")
        loop = asyncio.get_running_loop()
        for _ in range(3):
            began = loop.time()
            await bench.until("attempt.completed", await bench.enqueue("add.job", {"a": 1, "b": 1}))
            assert loop.time() - began < 3  # a poll comes after 7.5 to 10 s


async def test_a_cancel_reaches_a_running_body_and_stores_nothing(database_url: str) -> None:
    async with at(database_url, waits) as bench:
        job_id = await bench.enqueue("waits.job")
        await bench.until("attempt.started", job_id)
        await bench.driver.cancel(job_id, reason="no")
        await bench.until("attempt.superseded", job_id)
        assert (await bench.view(job_id)).state is State.CANCELLED
        assert not bench.probe.of("lease.lost")


async def test_a_drain_interrupts_uncounted_and_closes_the_row(database_url: str) -> None:
    async with at(database_url, waits) as bench:
        job_id = await bench.enqueue("waits.job", max_attempts=1)
        await bench.until("attempt.started", job_id)
        bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=10))
        await bench.worker.stop()
        view = await bench.view(job_id)
        assert (view.state, view.counters.attempt, view.counters.interrupts) == (State.READY, 0, 1)
        (row,) = await bench.driver.workers()
        assert row.closed_at is not None


async def test_an_abandoned_body_is_taken_over_as_interrupted(database_url: str) -> None:
    release = asyncio.Event()

    @job("signal.job", abort="signal")
    async def deaf() -> None:
        await release.wait()

    async with at(database_url, deaf) as bench:
        job_id = await bench.enqueue("signal.job", max_attempts=1)
        await bench.until("attempt.started", job_id)
        bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=1))
        await bench.worker.stop()
        assert bench.worker.abandoned == 1
        release.set()
        (row,) = await bench.driver.workers()
        assert row.closed_at is None
        left = row.lease_until - await bench.driver.database_time()
        assert timedelta(seconds=1) < left <= timedelta(seconds=4)


@pytest.mark.timeout(60)
async def test_a_database_that_is_away_for_longer_than_a_lease_counts_nothing(own_postgres: DevPostgres) -> None:
    url = own_postgres.dsn()
    await migrate(url)

    @job("patient.job", retry=RetryPolicy(max_attempts=1))
    async def patient(ctx: JobContext) -> int:
        if ctx.claim_no == 1:
            await ctx.signal.wait()
        return ctx.claim_no

    async with at(url, patient, add) as bench:
        jobs: list[JobId] = [await bench.enqueue("patient.job", max_attempts=1) for _ in range(3)]
        for job_id in jobs:
            await bench.until("attempt.started", job_id)
        await asyncio.to_thread(own_postgres.stop, "immediate")
        await bench.probe.wait("worker.lease_over", within=20)
        await bench.probe.wait("lease.lost", count=3)
        await asyncio.to_thread(own_postgres.start)
        for job_id in jobs:
            await bench.probe.wait("attempt.completed", job_id=str(job_id), within=30)
            view = await bench.view(job_id)
            assert (view.counters.attempt, view.counters.crashes) == (1, 0)
            assert [one.outcome for one in await bench.ledger(job_id)] == [OutcomeKind.LEASE_LOST]
        assert bench.value("outlast_attempts_crashed_total", job="patient.job", queue="default") == 0
