"""F40: an event before, while and after its run begins to wait, with duplicates, timeouts and no wake-ups.

However it falls, the run goes on exactly once, with the first event that was stored; none is lost.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from app.domain.event import EventId, NewEvent
from app.domain.job import JobId
from app.domain.state import State
from tests.faults.history import check
from tests.support.hands import hired
from tests.support.jobs_runs import EVENT
from tests.support.ledger import Ledger
from tests.support.proxy import proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(300)]

RACES = [pytest.param(40, id="40"), pytest.param(1_000, id="1000", marks=pytest.mark.soak)]
_AT_ONCE = 20


async def emit(store: Store, job_id: JobId, number: int) -> None:
    """Emit one event for a run."""
    event = NewEvent(id=EventId(uuid4()), tenant="default", name=EVENT, key=str(job_id), payload=str(number))
    await store.driver.emit(event)


async def first_of_all(store: Store, job_id: JobId) -> list[int]:
    """Give the events of a run in store order."""
    rows = await store.fetch("select payload from outlast.event where key = $1 order by seq", str(job_id))
    return [int(row[0]) for row in rows]


async def race(store: Store, dice: random.Random, payload: dict[str, object], events: int = 3) -> JobId:
    """Enqueue a run that waits, emit at any time around that, from several callers, and wait for its end."""
    job_id = await store.enqueue("runs.wait", payload)

    async def later(number: int) -> None:
        await asyncio.sleep(dice.choice((0.0, dice.random() * 0.05, dice.random() * 0.2)))
        await emit(store, job_id, number)

    await asyncio.gather(*(later(number) for number in range(events)))
    await store.until(job_id, within=90)
    return job_id


async def races(store: Store, count: int, seed: int, payload: dict[str, object], events: int = 3) -> list[JobId]:
    """Race many runs, some at a time."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> JobId:
        async with room:
            return await race(store, random.Random(seed * 10_000 + number), payload, events)

    return await asyncio.gather(*(one(number) for number in range(count)))


async def ends(store: Store, jobs: Sequence[JobId], *, waits: int = 1) -> list[list[int | None]]:
    """Give the results of runs that went on once for each wait, whose steps are right, and leave nothing behind."""
    found: list[list[int | None]] = []
    for job_id in jobs:
        view = await store.view(job_id)
        assert (view.state, view.counters.attempt, view.counters.claim_no) == (State.DONE, 1, 1 + waits)
        result: list[int | None] = json.loads(view.result or "")
        steps = await store.fetch("select value from outlast.step where run_id = $1 order by number", job_id)
        assert [None if row[0] is None else int(row[0]) for row in steps] == result
        found.append(result)
    assert await store.fetch("select from outlast.wait") == []
    assert await store.fetch("select from outlast.suspended") == []
    return found


@pytest.mark.parametrize("count", RACES)
async def test_the_first_event_resumes_the_run_once(
    store: Store, ledger: Ledger, database_url: str, count: int
) -> None:
    async with hired(database_url, concurrency=_AT_ONCE):
        jobs = await races(store, count, 1, {})
    for job_id, result in zip(jobs, await ends(store, jobs), strict=True):
        assert result == (await first_of_all(store, job_id))[:1]
    await check(store, ledger.events(), acked=jobs)


@pytest.mark.parametrize("count", RACES)
async def test_each_wait_takes_the_next_event(store: Store, ledger: Ledger, database_url: str, count: int) -> None:
    async with hired(database_url, concurrency=_AT_ONCE):
        jobs = await races(store, count // 2, 2, {"times": 3})
    for job_id, result in zip(jobs, await ends(store, jobs, waits=3), strict=True):
        assert result == await first_of_all(store, job_id)
    await check(store, ledger.events(), acked=jobs)


@pytest.mark.parametrize("count", RACES)
async def test_either_the_event_or_the_timeout_ends_a_wait(
    store: Store, ledger: Ledger, database_url: str, count: int
) -> None:
    async with hired(database_url, concurrency=_AT_ONCE):
        jobs = await races(store, count, 3, {"seconds": 0.04}, events=1)
    results = await ends(store, jobs)
    for job_id, result in zip(jobs, results, strict=True):
        assert result in ([0], [None])
        assert await first_of_all(store, job_id) == [0]
    await check(store, ledger.events(), acked=jobs)


async def test_without_wake_ups_no_event_is_lost(store: Store, ledger: Ledger, database_url: str, folder: Path) -> None:
    """LISTEN is dead and nobody knows: notifications do not arrive, polling finds what is ready."""
    async with proxy_to(database_url, folder) as proxy:
        proxy.drops_notifications = True
        async with hired(proxy.url, concurrency=_AT_ONCE):
            jobs = await races(store, 10, 4, {})
    for job_id, result in zip(jobs, await ends(store, jobs), strict=True):
        assert result == (await first_of_all(store, job_id))[:1]
    await check(store, ledger.events(), acked=jobs)
