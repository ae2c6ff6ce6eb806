"""Four schedulers at once on one database: no occurrence is missing and none is there twice, whoever is held up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from app.domain.schedule import DECLARATION_KEPT, Decided, Plan
from app.domain.state import State
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.jobs import Schedule
from tests.roles.scheduling import MINUTE, Post, every, fired, skipped, to_full_minute
from tests.support.cron_walk import Expression, enumerated, walk
from tests.support.drivers import PostgresEnv, postgres_env

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]

FOUR = 4
SCHEDULERS = "outlast schedulers"


class Together:
    """Holds every decision until all schedulers that are not left out want to decide the same."""

    def __init__(self) -> None:
        self.arrived: dict[datetime, int] = defaultdict(int)
        self.gates: dict[datetime, asyncio.Event] = defaultdict(asyncio.Event)
        self.expected = FOUR

    async def meet(self, until: datetime) -> None:
        self.arrived[until] += 1
        if self.arrived[until] >= self.expected:
            self.gates[until].set()
        await self.gates[until].wait()


def gather_at(post: Post, together: Together) -> None:
    inner = post.store.decide

    async def decide(plan: Plan) -> tuple[Decided, ...] | None:
        await together.meet(plan.until)
        return await inner(plan)

    post.store.decide = decide  # type: ignore[method-assign]  # the barrier stands before the real call


@asynccontextmanager
async def four(env: PostgresEnv, url: str, declared: Schedule) -> AsyncIterator[tuple[list[Post], Together]]:
    """Run four schedulers of processes of their own: each has an engine."""
    engines = [create_engine(url, pool_size=2, application_name=SCHEDULERS) for _ in range(FOUR)]
    drivers = [PostgresDriver(engine, schema="outlast", owns_engine=True) for engine in engines]
    together, posts = Together(), list[Post]()
    try:
        for driver in drivers:
            await driver.open()
            post = Post(driver, declared)
            gather_at(post, together)
            posts.append(post)
            await post.scheduler.start()
        for post in posts:
            await post.until_looked()
        yield posts, together
    finally:
        together.expected = 0
        for gate in together.gates.values():
            gate.set()
        for post in posts:
            await post.scheduler.stop()
        for driver in drivers:
            await driver.close()


async def jobs_ready(env: PostgresEnv) -> int:
    return (await env.driver.stats()).by_state.get(State.READY, 0)


async def test_four_that_decide_at_the_same_instant_fire_each_occurrence_once(database_url: str) -> None:
    async with postgres_env(database_url) as env:
        begin = await to_full_minute(env)
        async with four(env, database_url, every()) as (posts, together):
            for number in range(1, 9):
                await env.advance(MINUTE)
                await posts[0].until_decided(begin + number * MINUTE)
            rows = await posts[0].rows()
        runs = walk("UTC", begin, env.now())
        whole = frozenset(range(60))
        every_minute = Expression("* * * * *", whole, whole, frozenset(range(1, 32)), frozenset(range(1, 13)), whole)
        assert fired(rows) == [at for at in enumerated(every_minute, runs) if at > begin]
        assert skipped(rows) == []
        assert await jobs_ready(env) == 8
        assert len({row.job_id for row in rows}) == 8
        assert sum(together.arrived.values()) >= 8 * FOUR
        assert not [event for post in posts for event in post.probe.of("schedule.pass_failed")]


async def test_one_that_is_held_up_three_times_as_long_as_it_is_remembered_fires_nothing_twice(
    database_url: str,
) -> None:
    async with postgres_env(database_url) as env:
        begin = await to_full_minute(env)
        async with four(env, database_url, every(catch_up="all")) as (posts, together):
            frozen = posts[0]
            frozen.store.gate = asyncio.Event()
            await env.advance(MINUTE)
            await asyncio.wait_for(frozen.store.held.wait(), 10)
            await posts[1].until_decided(begin + MINUTE)
            together.expected = FOUR - 1
            minutes = int(3 * DECLARATION_KEPT / MINUTE)
            for number in range(2, minutes + 2):
                await env.advance(MINUTE)
                await posts[1].until_decided(begin + number * MINUTE)
            frozen.store.gate.set()
            frozen.store.gate = None
            await frozen.until_looked()
            rows = await posts[1].rows()
        assert fired(rows) == [begin + number * MINUTE for number in range(1, minutes + 2)]
        assert skipped(rows) == []
        assert await jobs_ready(env) == minutes + 1


async def test_four_that_skip_overlaps_never_have_two_jobs(database_url: str) -> None:
    async with postgres_env(database_url) as env:
        begin = await to_full_minute(env)
        async with four(env, database_url, every(overlap="skip")) as (posts, _):
            for number in range(1, 5):
                await env.advance(MINUTE)
                await posts[0].until_decided(begin + number * MINUTE)
            rows = await posts[0].rows()
        assert len(fired(rows)) == 1
        assert [why for _, why in skipped(rows)] == ["overlap"] * 3
        assert await jobs_ready(env) == 1


async def test_a_failed_connection_during_a_tick_leaves_the_next_to_do_it(database_url: str) -> None:
    async with postgres_env(database_url) as env:
        begin = await to_full_minute(env)
        reader = Post(env.driver, every())
        async with four(env, database_url, every()):
            await env.advance(MINUTE)
            await env.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                f" and application_name like '{SCHEDULERS}%'"
            )
            await reader.until_decided(begin + MINUTE)
            await env.advance(MINUTE)
            await reader.until_decided(begin + 2 * MINUTE)
            rows = await reader.rows()
        assert fired(rows) == [begin + MINUTE, begin + 2 * MINUTE]
        assert await jobs_ready(env) == 2
