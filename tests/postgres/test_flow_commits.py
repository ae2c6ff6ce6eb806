"""What became of a batch of counts whose reply was lost is asked of the server, whatever the server knows of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.flow import TIERS, FlowPart, FlowQuery
from app.drivers.postgres.connect import connect
from tests.conformance.test_flow import OK
from tests.support.drivers import PostgresEnv, postgres_env
from tests.support.made import flow_of

pytestmark = pytest.mark.postgres


@pytest.fixture
async def env(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url) as opened:
        yield opened


async def counted(env: PostgresEnv) -> int:
    points = await env.driver.flow(FlowQuery(tier=TIERS[2], since=env.now() - timedelta(days=1)))
    return sum(point.tally.counts[0] for point in points)


async def test_a_transaction_that_has_not_ended_is_waited_for(env: PostgresEnv, database_url: str) -> None:
    driver: Any = env.driver
    batch = flow_of(FlowPart("a.job", "mail", OK))
    other = await connect(database_url, application_name="other")
    for end in ("rollback", "commit"):
        before = await counted(env)
        await other.execute("begin")
        driver._tried[batch.id] = await other.fetchval("select pg_current_xact_id()::text")
        with pytest.raises(DriverUnavailable, match="still at an earlier try"):
            await driver.add_flow(batch)
        await other.execute(end)
        await driver.add_flow(batch)
        assert await counted(env) == before + (end == "rollback"), "what is committed is counted already"
    await other.close()


async def test_a_transaction_that_the_server_never_had_is_done_again(env: PostgresEnv) -> None:
    """As after a failover to a server that has not heard of it."""
    driver: Any = env.driver
    batch = flow_of(FlowPart("a.job", "mail", OK))
    driver._tried[batch.id] = str(2**40 + 12_345)
    await driver.add_flow(batch)
    assert await counted(env) == 1
