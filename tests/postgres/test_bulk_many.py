"""Large bulk operations beside a working fleet: every job is acted on once; with `-s` the times are shown."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from app.domain.bulk import MOST_SELECTED, BulkAction, BulkView
from app.domain.job import ClaimedJob, WorkerId
from app.domain.outcome import Completed, SettleAnswer, Settlement
from app.domain.state import State
from app.drivers.bulk import BulkStore
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.support.bulk import a_bulk
from tests.support.drivers import NAME, QUEUE, new_job, new_worker

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

MANY = [
    pytest.param(2_000, id="2000"),
    pytest.param(100_000, id="100000", marks=pytest.mark.soak),
    pytest.param(MOST_SELECTED, id="the most", marks=pytest.mark.soak),
]
_EXECUTORS = 3
_AT_ONCE = 20


@pytest.fixture
async def driver(database_url: str) -> AsyncIterator[PostgresDriver]:
    made = PostgresDriver(create_engine(database_url, pool_size=8), owns_engine=True)
    await made.open()
    yield made
    await made.close()


async def fill(driver: PostgresDriver, many: int) -> None:
    for first in range(0, many, 10_000):
        count = min(10_000, many - first)
        await driver.enqueue_many([new_job(key=f"k{n}" if n % 2 else None) for n in range(first, first + count)])


async def executed(store: BulkStore, made: BulkView) -> None:
    """Work an operation off, as one of several executors."""
    while (view := await store.find(made.id)) is not None and view.ended_at is None:
        if await store.step(only=made.id) is None:
            await asyncio.sleep(0.005)


async def worked(driver: PostgresDriver, worker: WorkerId, over: asyncio.Event) -> int:
    """Claim and complete jobs until told to end; gives how many were settled."""
    shares = (QueueShare(queue=QUEUE, room=_AT_ONCE),)
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=_AT_ONCE)
    settled = 0
    while not over.is_set():
        jobs: tuple[ClaimedJob, ...] = await driver.claim(request)
        answers = await driver.settle([Settlement(token=job.token, outcome=Completed()) for job in jobs])
        settled += Counter(answers)[SettleAnswer.SETTLED]
        await asyncio.sleep(0.001)
    return settled


async def states(driver: PostgresDriver) -> dict[State, int]:
    """Count to the end, which `stats` does not."""
    sql = (
        "select case state when 0 then 'done' when 2 then 'dead' else 'cancelled' end as state, count(*) as n"
        " from outlast.finished group by 1 union all select 'ready', count(*) from outlast.ready having count(*) > 0"
    )
    async with driver._db.raw() as conn:
        return {State(row["state"]): row["n"] for row in await conn.fetch(sql)}


def tell(line: str) -> None:
    """Show a figure to who runs the tests with `-s`."""
    sys.stdout.write(f"\n{line}")


@pytest.mark.parametrize("many", MANY)
async def test_a_cancel_of_many_beside_workers_takes_each_job_once(driver: PostgresDriver, many: int) -> None:
    await fill(driver, many)
    workers = [await driver.register_worker(new_worker(lease_ms=3_600_000)) for _ in range(2)]
    over = asyncio.Event()
    began = time.monotonic()
    made = await driver.bulk.make(a_bulk(BulkAction.CANCEL, expected_count=many))
    async with asyncio.TaskGroup() as group:
        working = [group.create_task(worked(driver, worker, over)) for worker in workers]
        executors = [group.create_task(executed(driver.bulk, made)) for _ in range(_EXECUTORS)]
        await asyncio.wait(executors)
        over.set()
    took = time.monotonic() - began
    view = await driver.bulk.find(made.id)
    assert view is not None
    done = sum(task.result() for task in working)
    tell(f"{many:,} jobs: {view.done:,} cancelled, {done:,} done by workers, {took:.1f} s")
    assert (view.done, view.changed, view.failed) == (view.done, done, 0)
    assert view.done + done == many
    assert await states(driver) == {state: n for state, n in ((State.CANCELLED, view.done), (State.DONE, done)) if n}
    assert await _count(driver, "audit") == view.done
    assert await _count(driver, "live_key") == 0
    if many >= 100_000:
        assert took < 120


@pytest.mark.parametrize("many", MANY)
async def test_a_retry_and_a_delete_of_many_take_each_job_once(driver: PostgresDriver, many: int) -> None:
    await fill(driver, many)
    for action, wanted, expected in (
        (BulkAction.CANCEL, (State.READY,), {State.CANCELLED: many}),
        (BulkAction.RETRY, (State.CANCELLED,), {State.READY: many}),
        (BulkAction.SET_PRIORITY, (State.READY,), {State.READY: many}),
        (BulkAction.CANCEL, (), {State.CANCELLED: many}),
        (BulkAction.DELETE, (), {}),
    ):
        began = time.monotonic()
        priority = 2 if action is BulkAction.SET_PRIORITY else None
        made = await driver.bulk.make(a_bulk(action, *wanted, expected_count=many, priority=priority))
        async with asyncio.TaskGroup() as group:
            for _ in range(_EXECUTORS):
                group.create_task(executed(driver.bulk, made))
        took = time.monotonic() - began
        view = await driver.bulk.find(made.id)
        assert view is not None
        tell(f"{action} of {many:,} jobs: {took:.1f} s")
        assert (view.done, view.left) == (many, 0)
        assert await states(driver) == expected
        if many >= 100_000:
            assert took < 120
    assert await _count(driver, "job") == 0


async def _count(driver: PostgresDriver, table: str) -> int:
    async with driver._db.raw() as conn:
        return int(await conn.fetchval(f"select count(*) from outlast.{table}"))
