from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.outcome import Completed, Interrupted, Retried, Snoozed
from app.drivers.protocol import Wake
from tests.conformance.ears import Ears
from tests.support.drivers import ERROR, DriverEnv, new_job


async def test_a_listener_hears_that_it_listens_and_then_what_happens(env: DriverEnv) -> None:
    ears = Ears()
    worker = await env.register()
    async with env.driver.listen(ears):
        await ears.wait_for(Wake.LISTENING)
        await env.enqueue()
        await ears.wait_for(Wake.READY)
        token = (await env.claim_one(worker)).token
        await env.close_attempt(token, Completed())
        await ears.wait_for(Wake.FINISHED)
        running = (await env.running(worker)).token
        await ears.wait_for(Wake.READY)
        await env.driver.cancel(running.job_id, reason="stop")
        await ears.wait_for(Wake.REVOKED)


async def test_whatever_makes_work_ready_wakes(env: DriverEnv) -> None:
    ears = Ears()
    worker = await env.register()
    async with env.driver.listen(ears):
        await ears.wait_for(Wake.LISTENING)
        await env.driver.enqueue_many([new_job(), new_job()])
        await ears.wait_for(Wake.READY)
        tokens = [held.token for held in await env.claim(worker)]
        await env.driver.release(tokens[:1], cause="drain")
        await ears.wait_for(Wake.READY)
        await env.driver.cancel(tokens[1].job_id, reason="stop")
        await ears.wait_for(Wake.REVOKED)
        await env.driver.retry(tokens[1].job_id)
        await ears.wait_for(Wake.READY)
        await env.enqueue(delay=timedelta(minutes=1))
        await ears.wait_for(Wake.DELAYED)
        await env.advance(timedelta(minutes=2))
        await env.driver.promote()
        await ears.wait_for(Wake.READY)


async def test_whatever_delays_work_wakes_who_promotes_it(env: DriverEnv) -> None:
    ears = Ears()
    worker = await env.register()
    async with env.driver.listen(ears, news=frozenset({Wake.DELAYED})):
        await ears.wait_for(Wake.LISTENING)
        await env.driver.enqueue_many([new_job(), new_job(run_at=env.now() + timedelta(hours=1))])
        await ears.wait_for(Wake.DELAYED)
        await env.close_attempt((await env.claim_one(worker)).token, Snoozed(delay=timedelta(minutes=1)))
        await ears.wait_for(Wake.DELAYED)
        for outcome in (
            Retried(error=ERROR, delay=timedelta(minutes=1)),
            Interrupted(cause="drain", delay=timedelta(minutes=1)),
        ):
            await env.close_attempt((await env.running(worker)).token, outcome)
            await ears.wait_for(Wake.DELAYED)


async def test_a_listener_hears_only_the_news_it_asked_for(env: DriverEnv) -> None:
    some, every = Ears(), Ears()
    worker = await env.register()
    async with env.driver.listen(some, news=frozenset({Wake.FINISHED})), env.driver.listen(every):
        await some.wait_for(Wake.LISTENING)
        await every.wait_for(Wake.LISTENING)
        token = (await env.running(worker)).token
        await every.wait_for(Wake.READY)
        await env.close_attempt(token, Completed())
        await some.wait_for(Wake.FINISHED)
    assert some.ever == {Wake.LISTENING, Wake.FINISHED}


async def test_two_listeners_hear_the_same_and_one_that_left_hears_nothing(env: DriverEnv) -> None:
    stays, leaves = Ears(), Ears()
    async with env.driver.listen(stays):
        async with env.driver.listen(leaves):
            await stays.wait_for(Wake.LISTENING)
            await leaves.wait_for(Wake.LISTENING)
            await env.enqueue()
            await stays.wait_for(Wake.READY)
            await leaves.wait_for(Wake.READY)
        await env.enqueue()
        await stays.wait_for(Wake.READY)
        assert Wake.READY not in leaves.heard


# --- opening and closing


async def test_an_open_driver_answers(env: DriverEnv) -> None:
    await env.driver.ping()
    assert await env.driver.database_time() == env.now()
    assert env.driver.capabilities.is_durable is (env.name != "memory")


async def test_time_moves_only_when_told(env: DriverEnv) -> None:
    before = await env.driver.database_time()
    await env.advance(timedelta(days=400, microseconds=1))
    assert await env.driver.database_time() == before + timedelta(days=400, microseconds=1)


async def test_a_closed_driver_refuses(env: DriverEnv) -> None:
    await env.driver.close()
    await env.driver.close()
    with pytest.raises(DriverUnavailable):
        await env.driver.ping()
    with pytest.raises(DriverUnavailable):
        await env.enqueue()
    with pytest.raises(DriverUnavailable):
        await env.driver.stats()
