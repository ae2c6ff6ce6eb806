"""Results awaited where jobs run and elsewhere, on both loops, and what is left when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uvloop

from app.domain.clock import ManualClock
from app.domain.errors import DriverUnavailable, OutlastError
from app.domain.job import JobId
from app.domain.outcome import Completed
from app.drivers.finishes import Finishes
from app.drivers.memory.driver import MemoryDriver
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import JobDriver, Wake
from app.jobs import Client, JobContext, RetryPolicy, Terminal, job, use_client
from tests.roles.harness import QUICK, working
from tests.support.drivers import MemoryEnv, new_id, new_job

LONG = timedelta(seconds=20)
LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]
STORES = ["memory", pytest.param("postgres", marks=pytest.mark.postgres)]


@job("numbers.double")
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


@job("numbers.fail", retry=RetryPolicy(max_attempts=1))
async def fail() -> int:
    raise Terminal("no number")


@job("numbers.sum")
async def total(ctx: JobContext, most: int) -> int:
    children = [await ctx.enqueue(double, {"number": number}) for number in range(most)]
    return sum([await child.result(timeout=LONG) for child in children])


@job("numbers.watch", retry=RetryPolicy(max_attempts=1))
async def watch(ctx: JobContext) -> str:
    child = await ctx.enqueue(fail, {})
    try:
        await child.result(timeout=LONG)
    except OutlastError as error:
        return f"{error.code} {error.details['error']}"
    return "nothing"


async def story(driver: JobDriver) -> None:
    """Await results outside of workers and in bodies, then close: nothing is left."""
    before = asyncio.all_tasks()
    async with working(double, fail, total, watch, driver=driver, options=QUICK):
        with use_client(Client(driver)):
            answers = await double.enqueue_many([{"number": number} for number in range(30)])
            assert [await one.result(timeout=LONG) for one in answers] == [number * 2 for number in range(30)]
            assert await (await total.enqueue({"most": 5})).result(timeout=LONG) == 20
            assert (await (await watch.enqueue({})).result(timeout=LONG)).startswith("JOB_FAILED {'type': 'Terminal'")
    await driver.close()
    assert asyncio.all_tasks() - before == set()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("store", STORES)
def test_results_are_awaited_in_bodies_and_elsewhere_on_both_loops(
    request: pytest.FixtureRequest, store: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    url = request.getfixturevalue("database_url") if store == "postgres" else None

    async def run() -> None:
        await story(
            MemoryDriver() if url is None else PostgresDriver(create_engine(url, pool_size=5), owns_engine=True)
        )

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_each_loop_of_a_process_looks_for_those_who_wait_on_it() -> None:
    env = MemoryEnv(ManualClock(datetime(2026, 1, 2, tzinfo=UTC)))
    finishes = Finishes(env.driver, linger_seconds=60)
    claimed = await env.running()

    def elsewhere() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(finishes.until(claimed.token.job_id))

    with ThreadPoolExecutor(2) as threads:
        loop = asyncio.get_running_loop()
        others = [loop.run_in_executor(threads, elsewhere) for _ in range(2)]
        own = asyncio.create_task(finishes.until(claimed.token.job_id))
        await asyncio.sleep(0)
        await env.close_attempt(claimed.token, Completed())
        await asyncio.gather(own, *others)
    await finishes.close()
    with pytest.raises(DriverUnavailable):
        await finishes.until(claimed.token.job_id)
    finishes.open()
    await finishes.until(claimed.token.job_id)
    await finishes.close()


class Odd(MemoryDriver):
    """A store that counts its listeners, and whose looks end as they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = 0
        self.opened = 0
        self.errors: list[Exception] = []

    async def finished_among(self, job_ids: Sequence[JobId]) -> frozenset[JobId]:
        if self.errors:
            raise self.errors.pop(0)
        return await super().finished_among(job_ids)

    @asynccontextmanager
    async def listen(self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake]) -> Any:  # type: ignore[override]
        self.opened += 1
        self.listening += 1
        try:
            async with super().listen(on_wake, news=news):
                yield
        finally:
            self.listening -= 1


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def test_nobody_listens_any_more_some_time_after_the_last_has_waited() -> None:
    store = Odd()
    finishes = Finishes(store, linger_seconds=0.05)
    for opened in (1, 2):
        await finishes.until(new_id())  # an absent job counts as gone
        assert (store.listening, store.opened) == (1, opened)
        await soon(lambda: store.listening == 0)
    await finishes.close()


async def test_while_the_store_is_away_they_wait_on_and_a_fault_of_ours_is_told() -> None:
    store = Odd()
    finishes = Finishes(store, poll_seconds=0.01)
    store.errors = [DriverUnavailable("away", fix="wait")] * 3
    await finishes.until(new_id())
    assert store.errors == []
    store.errors = [RuntimeError("inside")]
    with pytest.raises(RuntimeError, match="inside"):
        await finishes.until(new_id())
    await finishes.until(new_id())  # the next begins anew
    await finishes.close()


async def test_a_body_that_cancels_every_task_ends_nobody_elses_wait() -> None:
    @job("tasks.cancel")
    async def cancel_all() -> None:
        me = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not me and task.get_name().startswith("outlast."):
                task.cancel()

    async with working(cancel_all, double) as bench:
        with use_client(Client(bench.driver)):
            waits: list[Coroutine[Any, Any, Any]] = [(await cancel_all.enqueue({})).result(timeout=LONG)]
            waits += [(await double.enqueue({"number": 4})).result(timeout=LONG)]
            assert await asyncio.gather(*waits) == [None, 8]


@pytest.mark.postgres
async def test_a_hundred_waits_take_one_connection(database_url: str) -> None:
    driver = PostgresDriver(create_engine(database_url, pool_size=2), owns_engine=True)
    jobs = [new_job() for _ in range(100)]
    await driver.enqueue_many(jobs)
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(driver.until_finished(one.id)) for one in jobs]
        async with driver._db.raw() as conn:
            listening = (
                "select count(*) from pg_stat_activity where datname = $1 and application_name like 'outlast listen'"
            )
            every = "select count(*) from pg_stat_activity where datname = $1 and application_name like 'outlast%'"
            database = await conn.fetchval("select current_database()")
            while not await conn.fetchval(listening, database):
                await asyncio.sleep(0.005)
            for _ in range(5):
                await asyncio.sleep(0.02)
                assert await conn.fetchval(listening, database) == 1
                assert await conn.fetchval(every, database) <= 4  # two of the pool, and one that notifies
            assert not any(wait.done() for wait in waits)
        for one in jobs:
            await driver.cancel(one.id, reason="enough")
    await driver.close()
