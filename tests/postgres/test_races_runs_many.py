"""A thousand runs each that suspend while what they wait for comes: nothing is lost, nothing is taken twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import pytest

from app.domain.job import ClaimedJob, NewJob
from app.domain.outcome import Completed, SettleAnswer, Settlement, Suspended
from app.domain.state import State
from app.domain.step import NewWait
from tests.conformance.runs import CHILD, EVERY_NAME, HOUR, a_call, a_child, an_event, emit, enlist, known
from tests.support.drivers import DriverEnv, PostgresEnv, new_job, postgres_env

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

RUNS = 1000
AT_ONCE = 50


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url, pool_size=6) as opened:
        yield opened


async def claimed(env: DriverEnv, jobs: Sequence[NewJob]) -> list[ClaimedJob]:
    """Enqueue jobs and claim them, in the order given."""
    await env.driver.enqueue_many(jobs)
    worker = await enlist(env)
    found = {one.token.job_id: one for one in await env.claim(worker, names=EVERY_NAME, room=len(jobs))}
    return [found[job.id] for job in jobs]


async def suspend(env: DriverEnv, held: ClaimedJob, wait: NewWait) -> None:
    settlement = Settlement(token=held.token, outcome=Suspended(waits=(wait,)), has_waits=True)
    assert await env.driver.settle([settlement]) == (SettleAnswer.SETTLED,)


async def race(pairs: Sequence[tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]]) -> None:
    """Let the two of each pair go off together, the one or the other first, some pairs at once."""
    dice, gate = random.Random(7), asyncio.Semaphore(AT_ONCE)

    async def one(first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]]) -> None:
        async with gate:
            both = [first, second] if dice.random() < 0.5 else [second, first]
            await asyncio.gather(*(verb() for verb in both))

    await asyncio.gather(*(one(*pair) for pair in pairs))


async def all_are_ready(env: PostgresEnv, runs: Sequence[ClaimedJob]) -> None:
    """Every run is ready and has the one step it waited for."""
    stats = await env.driver.stats()
    assert (stats.by_state[State.READY], stats.by_state[State.SUSPENDED]) == (len(runs), 0)
    found = [await env.driver.history(one.token.job_id, one.run_id) for one in runs]
    assert [(len(one.steps), len(one.waits)) for one in found] == [(1, 0)] * len(runs)


async def test_no_event_is_lost_between_an_emit_and_a_suspend(store: PostgresEnv) -> None:
    runs = await claimed(store, [new_job() for _ in range(RUNS)])
    await race(
        [
            (partial(suspend, store, run, an_event(key=str(number))), partial(emit, store, key=str(number)))
            for number, run in enumerate(runs)
        ]
    )
    await all_are_ready(store, runs)


async def test_no_end_of_a_child_is_lost_between_its_settle_and_its_parents_suspend(store: PostgresEnv) -> None:
    """The children run already: each is found by its key when its parent calls it."""
    children = await claimed(
        store, [new_job(CHILD, key=str(number), dedupe_for=HOUR, parent_id=new_job().id) for number in range(RUNS)]
    )
    runs = await claimed(store, [new_job() for _ in range(RUNS)])

    async def complete(child: ClaimedJob) -> None:
        settlement = Settlement(token=child.token, outcome=Completed(result="7"), is_child=True)
        assert await store.driver.settle([settlement]) == (SettleAnswer.SETTLED,)

    await race(
        [
            (
                partial(suspend, store, run, a_call(a_child(run, key=str(number), dedupe_for=HOUR))),
                partial(complete, child),
            )
            for number, (run, child) in enumerate(zip(runs, children, strict=True))
        ]
    )
    await all_are_ready(store, runs)


async def test_no_wake_is_lost_between_a_time_that_comes_and_a_suspend_that_repeats_its_wait(
    store: PostgresEnv,
) -> None:
    runs = await claimed(store, [new_job() for _ in range(RUNS)])
    wait = an_event(delay=HOUR)
    for run in runs:
        both = Settlement(token=run.token, outcome=Suspended(waits=(wait, an_event("go", 1, key="go"))), has_waits=True)
        assert await store.driver.settle([both]) == (SettleAnswer.SETTLED,)
    await emit(store, key="go")
    worker = await enlist(store)
    again = await store.claim(worker, room=RUNS)
    assert len(again) == RUNS
    await store.advance(HOUR)

    async def wake() -> None:
        await store.driver.wake(batch=3)

    await race([(partial(suspend, store, run, known(wait)), wake) for run in again])
    while await store.driver.wake():
        pass
    stats = await store.driver.stats()
    assert (stats.by_state[State.READY], stats.by_state[State.SUSPENDED]) == (RUNS, 0)


async def test_cancels_of_waiters_and_emits_of_their_keys_end_without_a_deadlock(store: PostgresEnv) -> None:
    """Ten keys, a hundred runs each; every run is woken or cancelled, and no call fails."""
    runs = await claimed(store, [new_job() for _ in range(RUNS)])
    for number, run in enumerate(runs):
        await suspend(store, run, an_event(key=str(number % 10)))
    before = await _deadlocks(store)
    emits = [partial(emit, store, key=str(key)) for key in range(10) for _ in range(10)]
    cancels = [partial(store.driver.cancel, run.token.job_id, reason="no") for run in runs[::3]]
    verbs: list[Callable[[], Awaitable[object]]] = [*emits, *cancels]
    random.Random(7).shuffle(verbs)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(verb: Callable[[], Awaitable[object]]) -> None:
        async with gate:
            await verb()

    await asyncio.gather(*(one(verb) for verb in verbs))
    stats = await store.driver.stats()
    assert stats.by_state[State.SUSPENDED] == 0
    assert stats.by_state[State.READY] + stats.by_state[State.CANCELLED] == RUNS
    assert await _deadlocks(store) == before


async def _deadlocks(env: PostgresEnv) -> int:
    async with env.engine.connect() as connection:
        found = await connection.exec_driver_sql(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        count: int = found.scalar_one()
        return count
