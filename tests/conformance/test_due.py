from __future__ import annotations

from datetime import timedelta

from app.domain.outcome import Completed, Retried, Snoozed
from app.domain.snapshot import Due
from tests.support.drivers import ERROR, LEASE, DriverEnv

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NOTHING = Due(promote_in=None, must_expire=False, must_reap=False)


async def test_of_an_empty_store_and_of_ready_and_running_work_nothing_is_due(env: DriverEnv) -> None:
    assert await env.driver.due() == NOTHING
    await env.running()
    await env.enqueue(deadline=MINUTE, max_queue_time=MINUTE)
    assert await env.driver.due() == NOTHING


async def test_the_next_delayed_job_is_told_of_whatever_delays_it(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=3_600_000)
    await env.close_attempt((await env.running(worker)).token, Retried(error=ERROR, delay=3 * MINUTE))
    assert (await env.driver.due()).promote_in == 3 * MINUTE
    await env.close_attempt((await env.running(worker)).token, Snoozed(delay=2 * MINUTE))
    assert (await env.driver.due()).promote_in == 2 * MINUTE
    await env.enqueue(delay=MINUTE)
    assert (await env.driver.due()).promote_in == MINUTE
    await env.advance(MINUTE + SECOND)
    assert (await env.driver.due()).promote_in == -SECOND
    assert await env.driver.promote() == 1
    assert await env.driver.due() == Due(promote_in=MINUTE - SECOND, must_expire=False, must_reap=False)


async def test_a_limit_that_has_passed_is_told_of_until_its_job_is_expired(env: DriverEnv) -> None:
    await env.enqueue(max_queue_time=MINUTE)
    await env.advance(MINUTE - SECOND)
    assert await env.driver.due() == NOTHING
    await env.advance(SECOND)
    assert await env.driver.due() == Due(promote_in=None, must_expire=True, must_reap=False)
    assert len(await env.driver.expire()) == 1
    assert await env.driver.due() == NOTHING


async def test_the_limit_of_a_running_job_is_its_workers_to_see(env: DriverEnv) -> None:
    await env.running(await env.register(lease_ms=3_600_000), deadline=MINUTE)
    await env.advance(2 * MINUTE)
    assert await env.driver.due() == NOTHING


async def test_a_lapsed_worker_is_told_of_with_or_without_claims_until_it_is_reaped(env: DriverEnv) -> None:
    await env.register()
    await env.advance(LEASE - SECOND)
    assert await env.driver.due() == NOTHING
    await env.advance(SECOND)
    assert await env.driver.due() == Due(promote_in=None, must_expire=False, must_reap=True)
    assert await env.driver.reap() == ()
    assert await env.driver.due() == NOTHING


async def test_a_worker_that_closed_in_time_is_not_judged_by_its_lease(env: DriverEnv) -> None:
    worker = await env.register()
    await env.close_attempt((await env.running(worker)).token, Completed())
    await env.driver.close_worker(worker)
    await env.advance(2 * LEASE)
    assert await env.driver.due() == NOTHING


async def test_claims_of_a_worker_that_is_closed_lost_or_absent_are_told_of(env: DriverEnv) -> None:
    must_reap = Due(promote_in=None, must_expire=False, must_reap=True)
    closed = await env.register()
    await env.running(closed)
    await env.driver.close_worker(closed)
    assert await env.driver.due() == must_reap
    assert len(await env.driver.reap()) == 1
    absent = await env.register()
    await env.claim_one(absent)
    assert await env.driver.due() == NOTHING
    await env.forget_worker(absent)
    assert await env.driver.due() == must_reap
    assert len(await env.driver.reap()) == 1
    first, second = await env.register(), await env.register()
    await env.enqueue()
    assert len([await env.claim_one(worker) for worker in (first, second)]) == 2
    await env.advance(LEASE)
    assert len(await env.driver.reap(batch=1)) == 1
    assert await env.driver.due() == must_reap, "marked lost already, and one of its claims is left"
    assert len(await env.driver.reap(batch=1)) == 1
    assert await env.driver.due() == NOTHING
