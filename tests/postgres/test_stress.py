"""Everything at once: eight connections, every verb, random rollbacks, killed backends, workers that vanish.

At the end every job is brought to an end, and the books must balance: nothing lost, nothing in two places, nothing
settled twice.
"""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import Action
from app.domain.job import JobId
from app.domain.outcome import Completed, SettleAnswer, Settlement
from app.domain.state import State
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import PurgeQuery
from tests.conformance.runs import new_event
from tests.postgres.arena import Arena
from tests.postgres.chaos import EVENT_KEYS, PUBLISHED, Actor, Books, kill, request
from tests.support.audit import an_entry
from tests.support.deadlocks import Deadlocks
from tests.support.drivers import PostgresEnv, new_job, new_worker, start_time

pytestmark = pytest.mark.postgres


async def _enqueued(driver: PostgresDriver, count: int, seed: int) -> list[JobId]:
    dice = random.Random(seed)
    jobs = [
        new_job(
            key=f"k{number}" if number % 3 == 0 else None,
            delay=timedelta(milliseconds=dice.randint(0, 2000)) if number % 5 == 0 else None,
            deadline=timedelta(milliseconds=dice.randint(1, 3000)) if number % 11 == 0 else None,
            max_queue_time=timedelta(milliseconds=dice.randint(1, 3000)) if number % 13 == 0 else None,
            priority=dice.randint(0, 9),
        )
        for number in range(count)
    ]
    for start in range(0, count, 10_000):
        await driver.enqueue_many(jobs[start : start + 10_000])
    return [job.id for job in jobs]


async def _left(driver: PostgresDriver) -> int:
    by_state = (await driver.stats()).by_state
    return sum(by_state[state] for state in (State.READY, State.DELAYED, State.RUNNING, State.SUSPENDED))


async def _bring_to_an_end(driver: PostgresDriver, arena: Arena, books: Books) -> None:
    """Without chaos: reap, promote, wake and complete until nothing is alive; held jobs are cancelled."""
    worker = await driver.register_worker(new_worker(lease_ms=600_000))
    async with asyncio.timeout(60 + len(books.jobs) / 100):
        while await _left(driver):
            await driver.reap()
            await driver.promote()
            await driver.wake()
            for key in range(EVENT_KEYS):
                await driver.emit(new_event(key=str(key)))
            claimed = await driver.claim(request(worker, 500))
            for job in claimed:
                books.claims[job.token.job_id][job.token.fence] = job.token.claim_no
            batch = [Settlement(token=job.token, outcome=Completed(), has_waits=True) for job in claimed]
            answers = await driver.settle(batch)
            for settlement, answer in zip(batch, answers, strict=True):
                assert answer is SettleAnswer.SETTLED
                books.settled[settlement.token.fence] += 1
                books.completed[settlement.token.job_id] += 1
    for row in await arena.fetch("select job_id from outlast.held"):
        await driver.cancel(JobId(row[0]), reason="held")
    # Beside everything else neither an operator nor a purge may have come to any: some go whatever the machine does.
    last = JobId((await arena.fetch("select job_id from outlast.finished order by job_id desc limit 1"))[0][0])
    await driver.delete(last, audit=an_entry(Action.JOB_DELETE, last))
    books.deleted.add(last)
    assert await driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta(), batch=20)) > 0


async def _stress(arena: Arena, driver: PostgresDriver, *, count: int, seconds: float, seed: int) -> Books:
    """Claims grow with the number of jobs, so that each of them has a turn."""
    books, stop = Books(), asyncio.Event()
    books.jobs = jobs = await _enqueued(driver, count, seed)
    for doc in PUBLISHED:
        await driver.publish_job_types([doc])
    room = max(8, count // 1000)
    actors = [Actor(arena, books, jobs, seed=seed * 100 + number, room=room) for number in range(8)]
    parts = [Actor.work] * 4 + [Actor.operate] * 2 + [Actor.maintain] * 2
    async with asyncio.TaskGroup() as group:
        for actor, part in zip(actors, parts, strict=True):
            group.create_task(part(actor, stop))
        group.create_task(kill(arena, seed, stop))
        asyncio.get_running_loop().call_later(seconds, stop.set)
    await _bring_to_an_end(driver, arena, books)
    return books


async def _balance(arena: Arena, books: Books) -> None:
    count, jobs = len(books.jobs), set(books.jobs)

    async def one(sql: str) -> Any:
        return (await arena.fetch(sql))[0][0]

    assert books.calls["cut"] > 0
    assert len(books.claims) > count // 2, "most had a turn"
    # Nothing lost, nothing in two places: everything is finished, once, or was and has been purged whole.
    kept = {row[0] for row in await arena.fetch("select id from outlast.job")}
    assert await one("select count(*) from outlast.finished f join outlast.job j on j.id = f.job_id") == len(kept)
    for table in ("finished", "attempt", "expiry", "wait", "handed"):
        orphans = f"select count(*) from outlast.{table} where not exists (select from outlast.job where id = job_id)"
        assert await one(orphans) == 0
    purged = jobs - kept
    assert purged, "some were purged"
    assert kept <= jobs
    assert purged <= books.claims.keys() | books.deleted, "only what somebody had can have been done"
    live = "select count(*) from outlast.{}"
    places = ("ready", "waiting", "running", "suspended", "held", "live_key")
    assert [await one(live.format(name)) for name in places] == [0] * 6
    # What has ended well, or was cancelled, waits for nothing; what was purged has left nothing of its run.
    assert await one("select count(*) from outlast.wait w join outlast.finished f using (job_id) where state <> 2") == 0
    assert await one("select count(*) from outlast.step where run_id not in (select id from outlast.job)") == 0
    # No claim was settled twice, no job completed twice, and claim numbers grow with the fence.
    assert max(books.settled.values()) == 1
    assert max(books.completed.values()) == 1
    fences = [fence for of_job in books.claims.values() for fence in of_job]
    assert len(fences) == len(set(fences))
    for of_job in books.claims.values():
        numbers = [of_job[fence] for fence in sorted(of_job)]
        assert numbers == sorted(set(numbers))
    # An operator's action is done and on record, or neither.
    on_record = {row[0] for row in await arena.fetch("select target from outlast.audit where action = 'job.delete'")}
    assert on_record <= {str(job_id) for job_id in purged & books.deleted}
    assert await one("select count(*) from outlast.audit") > 0
    # The counters tell what the ledger tells.
    wrong = """
      select count(*) from outlast.finished f where f.interrupts <> (
        select count(*) from outlast.attempt a where a.job_id = f.job_id and a.outcome = 'interrupted')
      or f.claim_no < (select coalesce(max(number), 0) from outlast.attempt a where a.job_id = f.job_id)"""
    assert await one(wrong) == 0


async def run(database_url: str, *, count: int, seconds: float, seed: int, watch_url: str | None = None) -> None:
    """Do it all; behind a pooler `watch_url` leads past it."""
    engine = create_engine(database_url, pool_size=4)
    driver = PostgresDriver(engine)
    arena = Arena(PostgresEnv(driver, engine, start_time()), database_url, watch_url=watch_url)
    try:
        await driver.open()
        deadlocks = Deadlocks(arena.fetch)
        books = await _stress(arena, driver, count=count, seconds=seconds, seed=seed)
        await deadlocks.none(*books.deadlocks)
        await _balance(arena, books)
    finally:
        await arena.end()
        await driver.close()
        await engine.dispose()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_or_done_twice_among_two_thousand_jobs(database_url: str, seed: int) -> None:
    await run(database_url, count=2_000, seconds=6, seed=seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [3, 4])
async def test_nothing_is_lost_or_done_twice_among_fifty_thousand_jobs(database_url: str, seed: int) -> None:
    await run(database_url, count=50_000, seconds=180, seed=seed)
