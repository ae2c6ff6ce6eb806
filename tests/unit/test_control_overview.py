"""What is remembered of counting a store: for a moment, for a quarter of a minute, for a week."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import cast

from app.control.history import History
from app.control.overview import OverviewControl
from app.domain.outcome import DeadLettered
from app.domain.state import DeadReason, State
from app.drivers.protocol import JobDriver
from tests.http.api import failure
from tests.roles.harness import Flaky, Gate
from tests.support.drivers import memory_env, new_job


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_count_answers_for_two_seconds() -> None:
    async with memory_env() as env:
        clock = Clock()
        overview = OverviewControl(env.driver, monotonic=clock)
        assert (await overview.stats()).by_state.get(State.READY, 0) == 0
        await env.driver.enqueue(new_job())
        clock.now += 1.9
        assert (await overview.stats()).by_state.get(State.READY, 0) == 0
        clock.now += 0.2
        assert (await overview.stats()).by_state[State.READY] == 1
        await env.driver.enqueue(new_job())
        overview.forget()
        assert (await overview.stats()).by_state[State.READY] == 2, "this process has changed something"


async def test_a_count_under_way_is_neither_waited_for_nor_kept_by_who_changed_something() -> None:
    async with memory_env() as env:
        driver = Flaky(env.driver)
        gate = Gate(driver, "stats")
        overview = OverviewControl(cast("JobDriver", driver), monotonic=Clock())
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(overview.stats())
            await gate.entered.wait()
            await env.driver.enqueue(new_job())
            overview.forget()
            later = group.create_task(overview.stats())
            gate.go_on.set()
        assert slow.result() is not later.result()
        assert later.result() is await overview.stats()
        assert driver.calls == ["stats"] * 2


async def test_groups_under_way_are_neither_waited_for_nor_kept_by_who_deleted_some() -> None:
    async with memory_env() as env:
        driver = Flaky(env.driver)
        gate = Gate(driver, "dead_letters")
        overview = OverviewControl(cast("JobDriver", driver), monotonic=Clock())
        async with asyncio.TaskGroup() as group:
            group.create_task(overview.dead_letters(tenant=None))
            await gate.entered.wait()
            overview.forget_dead_letters()
            gate.go_on.set()
        for _ in range(2):
            await overview.dead_letters(tenant=None)
        assert driver.calls == ["dead_letters"] * 2


async def test_who_asks_for_dead_letters_waits_for_no_count() -> None:
    async with memory_env() as env:
        driver = Flaky(env.driver)
        gate = Gate(driver, "stats")
        overview = OverviewControl(cast("JobDriver", driver), monotonic=Clock())
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(overview.stats())
            await gate.entered.wait()
            assert await overview.dead_letters(tenant=None) == ()
            assert not counting.done()
            gate.go_on.set()


async def test_groups_of_dead_letters_answer_for_a_quarter_of_a_minute() -> None:
    async with memory_env() as env:
        clock = Clock()
        overview = OverviewControl(env.driver, monotonic=clock)
        assert await overview.dead_letters(tenant=None) == ()
        await env.driver.enqueue(new_job())
        claimed = await env.claim_one(await env.register())
        await env.close_attempt(claimed.token, DeadLettered(error=failure(), reason=DeadReason.TERMINAL))
        assert await overview.dead_letters(tenant=None) == ()
        assert await overview.dead_letters(tenant="other") == ()
        clock.now += 15.1
        (group,) = await overview.dead_letters(tenant=None)
        assert group.count == 1
        assert await overview.dead_letters(tenant="other") == ()


async def test_the_age_of_the_oldest_is_remembered_where_somebody_asked() -> None:
    async with memory_env() as env:
        clock = Clock()
        overview = OverviewControl(env.driver, monotonic=clock)
        await env.driver.enqueue(new_job())
        for _ in range(400):
            await env.advance(timedelta(seconds=10))
            await overview.stats()
            clock.now += 10.0
        history = overview.history(3_600)
        assert len(history) == 360
        assert (history[0].ago_seconds, history[-1]) == (3_600.0, (10.0, 4_000.0))
        clock.now += 1_800
        assert len(overview.history(3_600)) == 180
        day = overview.history(86_400)
        assert day[0] == (5_800.0, 300.0), "the worst of five minutes"
        assert [round(one.ago_seconds - other.ago_seconds) for one, other in pairwise(day)] == [300] * 13
        assert [sample.oldest_ready_seconds for sample in overview.history(604_800)] == [1_800.0, 3_600.0, 4_000.0]


def test_a_week_is_as_far_as_it_goes() -> None:
    history = History()
    for minute in range(8 * 24 * 60):
        history.add(minute * 60.0, float(minute))
    now = 8 * 24 * 3_600.0
    assert [len(history.since(now, seconds)) for seconds in (3_600, 86_400, 604_800)] == [60, 288, 336]
