"""A place that is freed in a queue with a concurrency is taken at once, by a job in the gate as by any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.job import JobId
from app.domain.queue import QueueChange
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.jobs.limits import Limit
from tests.roles.harness import QUICK, Bench, working
from tests.roles.test_limits import ALL

# A look that only a poll or a sweep leads to comes far too late for these tests.
SELDOM = replace(
    QUICK,
    poll=timedelta(seconds=60),
    sweep=timedelta(seconds=60),
    lease=timedelta(seconds=60),
    heartbeat=timedelta(milliseconds=200),
)
SOON = 10


@asynccontextmanager
async def on_postgres(url: str, *handles: JobHandle[Any, Any]) -> AsyncIterator[Bench]:
    driver = PostgresDriver(create_engine(url, pool_size=5), owns_engine=True)
    try:
        async with working(*handles, driver=driver, options=SELDOM) as bench:
            yield bench
    finally:
        await driver.close()


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def start(request: pytest.FixtureRequest) -> Any:
    """Give what opens a worker over one of the stores."""
    if request.param == "postgres":
        url = request.getfixturevalue("database_url")
        return lambda *handles: on_postgres(url, *handles)

    def opened(*handles: JobHandle[Any, Any]) -> AbstractAsyncContextManager[Bench]:
        return working(*handles, options=SELDOM)

    return opened


class Doors:
    """Bodies that run until told, of a limited type and of another."""

    def __init__(self) -> None:
        self.go_on: dict[str, asyncio.Event] = {}

        @job("limited.job", limits=[Limit(10)])
        async def limited(ctx: JobContext) -> None:
            await self._until_told(ctx)

        @job("plain.job")
        async def plain(ctx: JobContext) -> None:
            await self._until_told(ctx)

        self.handles = (limited, plain)

    async def _until_told(self, ctx: JobContext) -> None:
        told = asyncio.ensure_future(self.go_on.setdefault(str(ctx.id), asyncio.Event()).wait())
        over = asyncio.ensure_future(ctx.signal.wait())
        await asyncio.wait({told, over}, return_when=asyncio.FIRST_COMPLETED)
        for each in (told, over):
            each.cancel()

    def open(self, job_id: JobId) -> None:
        self.go_on.setdefault(str(job_id), asyncio.Event()).set()


async def _enqueue(bench: Bench, name: str) -> JobId:
    return await bench.enqueue(name, limits=ALL if name == "limited.job" else ())


@pytest.mark.parametrize("waiting", ["limited.job", "plain.job"])
@pytest.mark.parametrize("first", ["limited.job", "plain.job"])
@pytest.mark.parametrize("how", ["ends", "is cancelled", "another place", "no limit"])
async def test_a_place_that_is_freed_is_taken_at_once(start: Any, first: str, waiting: str, how: str) -> None:
    doors = Doors()
    async with start(*doors.handles) as bench, asyncio.timeout(SOON):
        await bench.driver.set_queue("default", QueueChange(concurrency=1))
        holder = await _enqueue(bench, first)
        await bench.until("attempt.started", holder)
        next_one = await _enqueue(bench, waiting)
        await _is_looked_at_and_left(bench, next_one)
        match how:
            case "ends":
                doors.open(holder)
            case "is cancelled":
                await bench.driver.cancel(holder, reason="a test")
            case _:
                await bench.driver.set_queue("default", QueueChange(concurrency=None if how == "no limit" else 2))
        await bench.until("attempt.started", next_one)
        doors.open(holder)
        doors.open(next_one)


async def _is_looked_at_and_left(bench: Bench, job_id: JobId) -> None:
    await asyncio.sleep(0.3)
    assert (await bench.view(job_id)).state == "ready"
