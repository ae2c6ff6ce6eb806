"""K10: after a hundred faults, or hundreds of cancelled calls and bodies, a process holds what it held before."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from app.domain.job import JobId
from app.domain.state import State
from app.drivers.outbox import outbox_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.jobs import JobContext, Registry, job
from app.jobs.client import Client
from app.jobs.request import EnqueueRequest
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.outbox.passes import SharedPasses
from app.outbox.relay import Relay, RelayOptions
from app.worker.options import WorkerOptions
from app.worker.worker import Worker
from tests.faults import resources
from tests.faults.resources import allowance, calm, measured, not_grown, sessions_of
from tests.support.drivers import new_job
from tests.support.processes import eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

CYCLES = 100
WARM_CYCLES = 5
CANCELS = 400
AT_ONCE = 16
CONCURRENCY = 16
POOL = 4
# One worker and one relay over one driver; both listen.
ALLOWED = allowance(pools=[POOL], listeners=2, workers=1)
_END = "select pg_terminate_backend(pid) from pg_stat_activity where pid = any($1::int[])"


@job("resources.plain")
async def plain(ctx: JobContext) -> None:
    await asyncio.sleep(0)


@job("resources.dawdles")
async def dawdles(ctx: JobContext) -> None:
    """Do a bit of everything that holds something while it lasts."""
    await plain.enqueue({})
    await asyncio.sleep(0.005)
    await asyncio.gather(plain.enqueue({}), plain.enqueue({}))
    await asyncio.sleep(0.2)


@job("resources.dawdles_sync")
def dawdles_sync(ctx: JobContext) -> None:
    """Hold a thread for a while, or until told."""
    until = time.monotonic() + 0.2
    while time.monotonic() < until and not ctx.signal.aborted:
        time.sleep(0.005)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A worker and a relay in the test's own process, and the store beside them."""

    store: Store
    driver: PostgresDriver
    client: Client
    outside: AsyncEngine
    worker: Worker

    async def enqueue(self, name: str = plain.name) -> JobId:
        """Enqueue from beside, over connections that no fault touches."""
        new = new_job(name)
        await self.store.driver.enqueue(new)
        return new.id

    async def stage(self) -> JobId:
        """Stage in the transaction of an application."""
        new, outbox = new_job(plain.name), outbox_of(self.store.driver)
        assert outbox is not None
        async with AsyncSession(self.outside) as session, session.begin():
            await outbox.stage(session, [new])
        return new.id

    async def published(self, staged: Sequence[JobId]) -> None:
        """Wait until staged jobs are there and done."""

        async def are_there() -> bool:
            rows = await self.store.fetch("select id from outlast.job where id = any($1::uuid[])", staged)
            return len(rows) == len(staged)

        await eventually(are_there, "the relay has published")
        await self.store.all_until(staged, State.DONE)


@pytest.fixture
async def life(store: Store, database_url: str) -> AsyncIterator[Life]:
    registry, telemetry = Registry([plain, dawdles, dawdles_sync]), Telemetry(metrics=Metrics())
    quick = timedelta(milliseconds=100)
    options = WorkerOptions(
        concurrency=CONCURRENCY, heartbeat=quick, sweep=quick, poll=quick, stats_every=2 * quick, code_version="tests"
    )
    async with AsyncExitStack() as ending:
        outside = create_async_engine(database_url, pool_size=2)
        ending.push_async_callback(outside.dispose)
        driver = PostgresDriver(create_engine(database_url, pool_size=POOL), owns_engine=True)
        await driver.open()
        ending.push_async_callback(driver.close)
        client, roll = Client(driver), random.Random(7).random
        outbox = outbox_of(driver)
        assert outbox is not None
        worker = Worker(
            driver=driver, registry=registry, options=options, telemetry=telemetry, roll=roll, client=client
        )
        relay = Relay(
            outbox=outbox,
            new_passes=lambda: SharedPasses(outbox),
            driver=driver,
            telemetry=telemetry,
            roll=roll,
            options=RelayOptions(poll=quick, sweep=2 * quick),
        )
        for role in (worker, relay):
            await role.start()
            ending.push_async_callback(role.stop)
        yield Life(store=store, driver=driver, client=client, outside=outside, worker=worker)


async def _ends_sessions(life: Life, dice: random.Random) -> int:
    """End all sessions of the product, those of one kind, or one."""
    sessions = [session for session in await sessions_of(life.store) if session.is_ours]
    names = sorted({session.name for session in sessions})
    kind = dice.choice(names)
    victims = dice.choice(
        [
            [session.pid for session in sessions],
            [session.pid for session in sessions if session.name == kind],
            [dice.choice(sessions).pid],
        ]
    )
    await life.store.fetch(_END, victims)
    return len(victims)


async def _cycle(life: Life, dice: random.Random, staged: list[JobId]) -> int:
    """Have jobs on their way from both sides while sessions end; those from the outbox arrive when they can."""
    jobs = [await life.enqueue() for _ in range(3)]
    staged.append(await life.stage())
    ended = await _ends_sessions(life, dice)
    jobs.append(await life.enqueue())
    await life.store.all_until(jobs, State.DONE)
    wrong = resources.idle_in_transaction(await sessions_of(life.store))
    assert not wrong, wrong
    return ended


@pytest.mark.long
async def test_a_hundred_lost_sessions_leave_nothing_behind(life: Life) -> None:
    dice = random.Random(10)
    staged: list[JobId] = []
    for _ in range(WARM_CYCLES):
        await _cycle(life, dice, staged)
    await life.published(staged)
    await calm(life.store, ALLOWED)
    warm = await measured(os.getpid(), life.store)
    ended = [await _cycle(life, dice, staged) for _ in range(CYCLES)]
    await life.published(staged)
    await _quiet(life)
    report(f"{sum(ended)} sessions ended in {CYCLES} cycles")
    await calm(life.store, ALLOWED)
    await not_grown(os.getpid(), life.store, warm)


async def _cancelled_call(life: Life, dice: random.Random) -> None:
    """Cancel an enqueue, of one or of some, after some turns of the loop or some fractions of a millisecond."""
    request = EnqueueRequest(name=plain.name, payload_text="{}")
    call = (
        life.client.enqueue(plain.job_type, request)
        if dice.random() < 0.5
        else life.client.enqueue_many(plain.job_type, [request] * 3)
    )
    async with asyncio.TaskGroup() as group:
        task: asyncio.Task[object] = group.create_task(call)
        await _a_moment(dice)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _cancelled_body(life: Life, dice: random.Random) -> None:
    """Cancel a job before, while or after its body runs."""
    job_id = await life.enqueue(dice.choice((dawdles, dawdles_sync)).name)
    if dice.random() < 0.8:
        await life.store.until(job_id, State.RUNNING, State.DONE)
        await _a_moment(dice)
    await life.driver.cancel(job_id, reason="enough")
    assert await life.store.state(job_id) in {State.CANCELLED, State.DONE}


async def _a_moment(dice: random.Random) -> None:
    if dice.random() < 0.5:
        for _ in range(dice.randrange(12)):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(dice.uniform(0, 0.005))


async def _quiet(life: Life) -> None:
    """Come back once no job is to be run or running, and no body is left that was not told yet."""

    async def is_quiet() -> bool:
        every = " union all ".join(f"select 1 from outlast.{place}" for place in ("ready", "waiting", "running"))
        return not await life.store.fetch(every) and not life.worker.held()

    await eventually(is_quiet, "everything has been done")


@pytest.mark.long
async def test_hundreds_of_cancelled_calls_and_bodies_leave_nothing_behind(life: Life) -> None:
    """P39: wherever in a call or a body the cancel comes, what it held is given back, and the next is served."""
    dice = random.Random(39)

    async def cancels(count: int) -> None:
        for _ in range(count // AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(dice.choice((_cancelled_call, _cancelled_body))(life, dice))

    await cancels(2 * AT_ONCE)
    # Threads for bodies are made as they are needed, up to one for each at once.
    await life.store.all_until([await life.enqueue(dawdles_sync.name) for _ in range(3 * CONCURRENCY)])
    await _quiet(life)
    await calm(life.store, ALLOWED)
    warm = await measured(os.getpid(), life.store)
    await cancels(CANCELS)
    await life.store.all_until([await life.enqueue() for _ in range(2 * POOL)], State.DONE)
    await _quiet(life)
    await calm(life.store, ALLOWED)
    await not_grown(os.getpid(), life.store, warm)


# --- the checker notices ----------------------------------------------------------------------------------------------


async def test_a_session_too_many_an_open_transaction_and_a_lock_are_noticed(store: Store, database_url: str) -> None:
    engine = create_engine(database_url, pool_size=2)
    try:
        async with engine.connect() as first, engine.connect() as second:
            one = (await first.get_raw_connection()).driver_connection
            assert one is not None
            await calm(store, allowance(pools=[2], listeners=0, workers=0), within=0)
            with pytest.raises(AssertionError, match="2 sessions are called 'outlast', 1 are allowed"):
                await calm(store, allowance(pools=[1], listeners=0, workers=0), within=0.1)
            await one.execute("begin")
            with pytest.raises(AssertionError, match="idle in a transaction"):
                await calm(store, allowance(pools=[2], listeners=0, workers=0), oldest=0, within=0.1)
            await one.execute("rollback")
            two = (await second.get_raw_connection()).driver_connection
            assert two is not None
            await two.execute("select pg_advisory_lock(1)")
            with pytest.raises(AssertionError, match="1 advisory locks"):
                await calm(store, allowance(pools=[2], listeners=0, workers=0), within=0.1)
            await two.execute("select pg_advisory_unlock(1)")
    finally:
        await engine.dispose()


async def test_descriptors_tasks_and_threads_that_stay_are_noticed(store: Store) -> None:
    warm, pid, more = await measured(os.getpid(), store), os.getpid(), resources.MOST_MORE + 2
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(more)]
    with pytest.raises(AssertionError, match="descriptors"):
        await not_grown(pid, store, warm, within=0)
    for descriptor in descriptors:
        os.close(descriptor)
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(more):
            group.create_task(over.wait())
        with pytest.raises(AssertionError, match="tasks"):
            await not_grown(pid, store, warm, within=0)
        over.set()
    may_end = threading.Event()
    threads = [threading.Thread(target=may_end.wait) for _ in range(more)]
    for thread in threads:
        thread.start()
    with pytest.raises(AssertionError, match="threads"):
        await not_grown(pid, store, warm, within=0)
    may_end.set()
    for thread in threads:
        thread.join()
    await not_grown(pid, store, warm)
