"""What a session sets stays with its server, where the next client finds it: we leave nothing and take nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import QueryTooSlow
from app.domain.outcome import Completed, Retried
from app.domain.state import State
from app.domain.waited import waited_for
from app.drivers.postgres import migrations
from app.drivers.postgres.connect import connect
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.look import look
from app.drivers.protocol import PurgeQuery, Wake
from app.drivers.reading import ListQuery
from tests.support.drivers import ERROR, postgres_env
from tests.support.pooler import Pooler, at_each_server

pytestmark = pytest.mark.postgres


async def converse(url: str, listen_url: str) -> None:
    """Say everything there is to say."""
    heard: list[Wake] = []
    async with postgres_env(url, listen_url=listen_url) as env, env.driver.listen(heard.append):
        worker = await env.register()
        first = await env.running(worker, key="k", max_queue_time=timedelta(hours=1))
        await env.renew(worker, [first.token])
        await env.close_attempt(first.token, Retried(error=ERROR, delay=timedelta()))
        await env.driver.promote()
        second = await env.claim_one(worker)
        await env.close_attempt(second.token, Completed())
        third = await env.running(worker)
        await env.driver.cancel(third.token.job_id, reason="no")
        await env.driver.retry(third.token.job_id)
        fourth = await env.claim_one(worker)
        await env.abandon(worker, [fourth.token])
        await env.vanish()
        await env.driver.reap()
        await env.driver.expire()
        await env.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta()))
        await env.driver.stats()
        await env.driver.workers()
        await look_around(env.driver)


async def look_around(driver: object) -> None:
    """Read as for somebody who waits, in time and too late."""
    assert isinstance(driver, PostgresDriver)
    with waited_for():
        await driver.list(ListQuery(tenant="default"))
        await driver.queues()
        with pytest.raises(QueryTooSlow):
            await look(driver._db, lambda db: db.run(lambda conn: conn.execute("select pg_sleep(60)")), seconds=0.1)


async def test_nothing_of_ours_is_left_at_a_server_and_nothing_of_others_is_taken(
    pooled_url: str, database_url: str
) -> None:
    await at_each_server(pooled_url, mark="theirs")
    marked = [row["mark"] for row in await at_each_server(pooled_url)]
    await converse(pooled_url, database_url)
    await migrations.upgrade(pooled_url)
    assert await migrations.check(pooled_url) == ()
    seen = await at_each_server(pooled_url)
    assert [row["left_behind"] for row in seen if row["left_behind"]] == []
    assert [row["mark"] for row in seen].count("theirs") == marked.count("theirs") > 0


async def test_a_setting_or_a_lock_that_is_left_would_be_seen(transaction_pooler: Pooler, pooled_url: str) -> None:
    client = await connect(pooled_url, application_name="careless")
    await client.execute("set work_mem = '5MB'; listen somebody; select pg_advisory_lock(7); create temp table t ()")
    await client.close()
    left = [row["left_behind"] for row in await at_each_server(pooled_url) if row["left_behind"]]
    assert left == [["set work_mem", "listen somebody", "lock advisory", "temp t"]]
