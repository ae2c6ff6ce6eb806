"""How many jobs of a tenant wait: those that are ready, limited or not, and those that are delayed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import LimitKey
from app.domain.outcome import Completed, Snoozed
from tests.conformance.runs import a_sleep, suspend
from tests.support.drivers import DriverEnv

MANY = 100


@pytest.fixture(params=["exact", "newest and first alone"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether all can be looked at."""
    way: str = request.param
    if way != "exact":
        monkeypatch.setattr("app.drivers.postgres.waiting_count.WAITING_LOOKED_AT", -MANY + 1)
    return way


@pytest.mark.parametrize("tenant", ["acme", "default"])
async def test_what_waits_is_counted_and_nothing_else(env: DriverEnv, tenant: str) -> None:
    async def count() -> int:
        return await env.driver.count_waiting(tenant, MANY)

    assert await count() == 0
    worker = await env.register()
    for other in ("other", "elsewhere"):
        await env.enqueue(tenant=other)
    await env.enqueue(tenant=tenant, delay=timedelta(hours=1))
    await env.enqueue(tenant=tenant, limits=(LimitKey("n", "key"),), queue="limited")
    mine = [await env.enqueue(tenant=tenant, queue="mine") for _ in range(4)]
    assert await count() == 6
    done, resting, snoozing = [await env.claim_one(worker, queues=("mine",)) for _ in range(3)]
    assert await count() == 3
    await env.close_attempt(done.token, Completed())
    await suspend(env, resting, a_sleep())
    assert await count() == 3
    await env.close_attempt(snoozing.token, Snoozed(delay=timedelta(hours=1)))
    assert await count() == 4
    await env.driver.cancel(mine[3], reason="no")
    assert await count() == 3
    await env.driver.retry(mine[3])
    assert await count() == 4
    assert await env.driver.count_waiting(tenant, 2) == 2


@pytest.mark.parametrize("tenant", ["acme", "default"])
@pytest.mark.usefixtures("looks")
async def test_it_never_counts_too_many(env: DriverEnv, tenant: str) -> None:
    worker = await env.register()
    for _ in range(3):
        await env.enqueue(tenant=tenant, queue="old")
    for _ in range(3):
        await env.running(worker, tenant=tenant)
    await env.enqueue(tenant="other")
    assert 0 <= await env.driver.count_waiting(tenant, MANY) <= 3
