"""Every way a claim can be gone, for tests of writes that must leave nothing behind then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import pytest

from app.domain.job import ClaimedJob, ClaimToken
from app.domain.outcome import Completed, Interrupted
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.support.drivers import LEASE, DriverEnv, new_id, with_token

Fence: TypeAlias = Callable[[DriverEnv, ClaimedJob], Awaitable[ClaimToken]]


async def another_worker(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    return with_token(held.token, worker_id=await env.register())


async def another_fence(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    return with_token(held.token, fence=held.token.fence + 1)


async def another_claim_no(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    return with_token(held.token, claim_no=held.token.claim_no + 1, fence=held.token.fence + 1)


async def an_older_claim(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.driver.release((held.token,), cause="test")
    assert (await env.claim_one(held.token.worker_id)).token.job_id == held.token.job_id
    return held.token


async def an_unknown_job(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    return with_token(held.token, job_id=new_id())


async def completed(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.close_attempt(held.token, Completed())
    return held.token


async def interrupted(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.close_attempt(held.token, Interrupted(cause="drain"))
    return held.token


async def cancelled(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.driver.cancel(held.token.job_id, reason="stop")
    return held.token


async def reaped(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.vanish()
    assert len(await env.driver.reap()) == 1
    return held.token


async def surrendered(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    assert len(await env.driver.surrender(held.token.worker_id)) == 1
    return held.token


async def purged(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.driver.cancel(held.token.job_id, reason="stop")
    await env.advance(timedelta(seconds=10))
    assert await env.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=timedelta(seconds=5))) == 1
    return held.token


async def a_lease_that_has_passed(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.advance(LEASE)
    return held.token


async def a_closed_worker(env: DriverEnv, held: ClaimedJob) -> ClaimToken:
    await env.driver.close_worker(held.token.worker_id)
    return held.token


FENCES: tuple[Fence, ...] = (
    another_worker,
    another_fence,
    another_claim_no,
    an_older_claim,
    an_unknown_job,
    completed,
    interrupted,
    cancelled,
    reaped,
    surrendered,
    purged,
    a_lease_that_has_passed,
    a_closed_worker,
)
every_fence = pytest.mark.parametrize("fence", [pytest.param(one, id=one.__name__) for one in FENCES])
