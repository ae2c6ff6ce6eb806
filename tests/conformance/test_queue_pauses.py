"""Pauses that end by themselves, by the store's clock."""

from __future__ import annotations

from datetime import timedelta

from app.domain.queue import JUST_ENDED, Pause
from app.drivers.protocol import Wake
from tests.conformance.ears import hearing
from tests.support.drivers import DriverEnv

MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)


async def test_a_pause_ends_at_its_time_whoever_looks(env: DriverEnv) -> None:
    job_id, worker = await env.enqueue(), await env.register(lease_ms=3_600_000)
    await env.driver.pause_queue("default", by="ops", reason="provider is down", until=env.now() + MINUTE)
    assert await env.claim(worker) == ()
    await env.advance(MINUTE - MICROSECOND)
    assert await env.claim(worker, queues=("default", "other")) == ()
    await env.advance(MICROSECOND)
    assert (await env.claim_one(worker)).token.job_id == job_id


async def test_a_pause_that_ends_is_shown_with_its_end_and_then_no_more(env: DriverEnv) -> None:
    until = env.now() + MINUTE
    await env.driver.pause_queue("mail", by="ops", reason="a look", until=until)
    (queue,) = await env.driver.queues()
    assert (queue.paused_at, queue.paused_by, queue.paused_until) == (env.now(), "ops", until)
    assert (await env.driver.queue_facts("mail")).pause == Pause(at=env.now(), by="ops", reason="a look", until=until)
    await env.advance(MINUTE)
    assert await env.driver.queues() == ()
    assert (await env.driver.queue_facts("mail")).pause is None


async def test_of_two_pauses_the_longer_stands(env: DriverEnv) -> None:
    async def stands() -> str | None:
        pause = (await env.driver.queue_facts("mail")).pause
        return None if pause is None else pause.by

    soon, late = env.now() + MINUTE, env.now() + 2 * MINUTE
    await env.driver.pause_queue("mail", by="late", until=late)
    await env.driver.pause_queue("mail", by="soon", until=soon)
    assert await stands() == "late"
    await env.driver.pause_queue("mail", by="late, too", until=late)
    assert await stands() == "late"
    await env.driver.pause_queue("mail", by="for good")
    assert await stands() == "for good"
    await env.driver.pause_queue("mail", by="late", until=late)
    assert await stands() == "for good"
    await env.driver.resume_queue("mail")
    assert await stands() is None


async def test_a_pause_begins_anew_where_one_has_ended(env: DriverEnv) -> None:
    await env.driver.pause_queue("mail", by="first", until=env.now() + 5 * MINUTE)
    await env.advance(5 * MINUTE)
    await env.driver.pause_queue("mail", by="second", until=env.now() + MINUTE)
    (queue,) = await env.driver.queues()
    assert (queue.paused_at, queue.paused_by, queue.pause_reason) == (env.now(), "second", None)


async def test_a_pause_can_be_ended_before_its_time(env: DriverEnv) -> None:
    await env.enqueue()
    await env.driver.pause_queue("default", by="ops", until=env.now() + MINUTE)
    async with hearing(env) as ears:
        await env.driver.resume_queue("default")
        await ears.wait_for(Wake.READY)
    assert len(await env.claim(await env.register())) == 1


async def test_workers_are_told_that_there_is_an_end_to_come(env: DriverEnv) -> None:
    async with hearing(env) as ears:
        await env.driver.pause_queue("mail", by="ops", until=env.now() + MINUTE)
        await ears.wait_for(Wake.DELAYED)


async def test_the_next_end_of_a_pause_is_told_of(env: DriverEnv) -> None:
    assert (await env.driver.due()).resume_in is None
    await env.driver.pause_queue("a", by="ops")
    await env.driver.pause_queue("b", by="ops", until=env.now() + 2 * MINUTE)
    await env.driver.pause_queue("c", by="ops", until=env.now() + MINUTE)
    assert (await env.driver.due()).resume_in == MINUTE
    await env.advance(MINUTE)
    found = await env.driver.due()
    assert (found.resume_in, found.has_resumed) == (MINUTE, True)
    await env.advance(JUST_ENDED)
    assert (await env.driver.due()).has_resumed is False
    await env.advance(MINUTE - JUST_ENDED)
    found = await env.driver.due()
    assert (found.resume_in, found.has_resumed) == (None, True)
