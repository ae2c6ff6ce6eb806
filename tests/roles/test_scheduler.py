"""The scheduler role: what comes due becomes jobs, once, on both drivers; and it leaves in order."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from app.domain.errors import DriverUnavailable
from app.domain.schedule import OCCURRENCES_KEPT, Decided, OccurrenceOutcome, Overlap, Plan, Planned
from app.domain.state import State
from app.drivers.schedules import schedules_of
from app.jobs import schedule
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Phase
from tests.roles.scheduling import MINUTE, NAME, Post, every, fired, note, scheduling, skipped, to_full_minute
from tests.support.drivers import DriverEnv, driver_kind, driver_url, env, memory_env

__all__ = ["driver_kind", "driver_url", "env"]


async def test_what_comes_due_becomes_a_job_once(env: DriverEnv) -> None:
    begin = await to_full_minute(env)
    async with scheduling(env, every()) as post:
        for number in range(1, 4):
            await env.advance(MINUTE)
            await post.until_decided(begin + number * MINUTE)
        await post.until_looked()
        rows = await post.rows()
    assert fired(rows) == [begin + number * MINUTE for number in range(1, 4)]
    assert (await env.driver.stats()).by_state[State.READY] == 3
    jobs = [await env.driver.describe(row.job_id) for row in rows if row.job_id is not None]
    assert [(view.name, view.enqueued_by) for view in jobs if view is not None] == [
        ("ticks.note", "schedule:ticks")
    ] * 3
    assert post.value("outlast_schedule_occurrences_total", schedule=NAME, outcome="fired") == 3
    assert post.value("outlast_schedule_lag_seconds") is not None


async def test_a_schedule_that_skips_waits_for_its_job(env: DriverEnv) -> None:
    begin = await to_full_minute(env)
    async with scheduling(env, every(overlap="skip")) as post:
        for number in (1, 2):
            await env.advance(MINUTE)
            await post.until_decided(begin + number * MINUTE)
        rows = await post.rows()
        (job_id,) = (row.job_id for row in rows if row.outcome is OccurrenceOutcome.FIRED)
        assert skipped(rows) == [(begin + 2 * MINUTE, "overlap")]
        assert job_id is not None
        await env.driver.cancel(job_id, reason="enough")
        await env.advance(MINUTE)
        await post.until_decided(begin + 3 * MINUTE)
        assert fired(await post.rows()) == [begin + MINUTE, begin + 3 * MINUTE]


async def test_a_pause_skips_and_resuming_catches_up_nothing(env: DriverEnv) -> None:
    begin = await to_full_minute(env)
    async with scheduling(env, every(catch_up="all")) as post:
        await post.store.pause(NAME, by="ada")
        await env.advance(3 * MINUTE)
        await post.until_decided(begin + 3 * MINUTE)
        await post.store.resume(NAME)
        await env.advance(MINUTE)
        await post.until_decided(begin + 4 * MINUTE)
        rows = await post.rows()
    assert skipped(rows) == [(begin + number * MINUTE, "paused") for number in (1, 2, 3)]
    assert fired(rows) == [begin + 4 * MINUTE]


async def test_during_a_rolling_deploy_only_the_new_expression_fires(env: DriverEnv) -> None:
    begin = await to_full_minute(env)
    # Minutes that only one of the two names, so that every row says whose it is.
    old = every(f"{(begin + MINUTE).minute},{(begin + 3 * MINUTE).minute} * * * *")
    new = every(f"{(begin + 2 * MINUTE).minute},{(begin + 4 * MINUTE).minute} * * * *")
    async with scheduling(env, old, version="1") as before:
        await env.advance(MINUTE)
        await before.until_decided(begin + MINUTE)
        async with scheduling(env, new, version="2") as after:
            for _ in range(3):
                await env.advance(MINUTE)
                await after.until_looked()
                await before.until_looked()
            await after.until_decided(begin + 4 * MINUTE)
            rows = await after.rows()
    assert fired(rows) == [begin + MINUTE, begin + 2 * MINUTE, begin + 4 * MINUTE]
    assert skipped(rows) == []


async def test_a_tick_that_failed_is_done_again_and_once() -> None:
    async with memory_env() as env:
        begin = await to_full_minute(env)
        async with scheduling(env, every()) as post:
            post.store.errors = [DriverUnavailable("away", fix="wait")] * 2
            await env.advance(MINUTE)
            await post.until_decided(begin + MINUTE)
            rows = await post.rows()
        assert fired(rows) == [begin + MINUTE]
        assert post.store.decisions == 3


async def test_told_to_leave_it_decides_nothing_more_and_waits_for_the_pass_in_flight() -> None:
    async with memory_env() as env:
        begin = await to_full_minute(env)
        post = Post(env.driver, every())
        await post.scheduler.start()
        await post.until_looked()
        post.store.gate = asyncio.Event()
        await env.advance(MINUTE)
        await asyncio.wait_for(post.store.held.wait(), 10)

        leaving = asyncio.create_task(post.scheduler.stop())
        await asyncio.sleep(0)
        await env.advance(MINUTE)
        post.store.gate.set()
        await asyncio.wait_for(leaving, 10)

        assert post.scheduler.phase is Phase.STOPPED
        assert fired(await post.rows()) == [begin + MINUTE]
        assert post.store.decisions == 1


async def test_a_pass_that_hangs_is_given_up_when_the_time_is_over() -> None:
    async with memory_env() as env:
        await to_full_minute(env)
        post = Post(env.driver, every())
        await post.scheduler.start()
        await post.until_looked()
        post.store.gate = asyncio.Event()
        await env.advance(MINUTE)
        await asyncio.wait_for(post.store.held.wait(), 10)
        notice = DrainNotice(cause="SIGTERM", started=time.monotonic(), seconds=0.5)
        post.scheduler.drain(notice)
        await asyncio.wait_for(post.scheduler.stop(), 10)
        assert post.scheduler.abandoned == 1


async def test_one_schedule_in_trouble_does_not_hold_up_the_others() -> None:
    async with memory_env() as env:
        begin = await to_full_minute(env)
        other = schedule("other", job=note, cron="* * * * *", tz="UTC")
        post = Post(env.driver, other, every())
        await post.scheduler.start()
        await post.until_looked()
        inner = post.store.inner.decide

        async def decide(plan: Plan) -> tuple[Decided, ...] | None:
            if plan.name == "other":
                raise RuntimeError("odd")
            return await inner(plan)

        post.store.decide = decide  # type: ignore[method-assign]  # one schedule's trouble
        await env.advance(MINUTE)
        await post.until_decided(begin + MINUTE)
        await post.scheduler.stop()
        assert fired(await post.rows()) == [begin + MINUTE]


async def test_ten_lives_leave_nothing_behind() -> None:
    async with memory_env() as env:
        begin = await to_full_minute(env)
        post = Post(env.driver, every())
        for number in range(1, 11):
            await post.scheduler.start()
            await env.advance(MINUTE)
            await post.until_decided(begin + number * MINUTE)
            await post.scheduler.stop()
        assert len(fired(await post.rows())) == 10


async def test_old_rows_go_however_many_they_are(env: DriverEnv) -> None:
    """More than one batch of them, at the one time of a life that they are looked for."""
    store, at = schedules_of(env.driver), await to_full_minute(env)
    assert store is not None
    old = schedule(NAME, job=note, cron="* * * * *", tz="UTC").declaration(code_version="1")
    await store.declare([old])
    skipped = tuple(Planned(at=at - n * MINUTE, why="paused") for n in range(2_500))
    await store.decide(Plan(name=NAME, digest=old.digest, until=at, planned=skipped, overlap=Overlap.ALLOW))
    await env.advance(OCCURRENCES_KEPT + MINUTE)
    async with scheduling(env, every("0 0 1 1 *"), trim=timedelta(hours=1)) as post:

        async def are_gone() -> bool:
            view = await store.find(NAME, occurrences=100_000)
            return view is not None and not any(row.why == "paused" for row in view.occurrences)

        await post.until(are_gone)
