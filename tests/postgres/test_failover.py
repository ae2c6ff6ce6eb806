"""A standby that is promoted serves long after it was started: leases lapsed meanwhile are not held against workers."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from app.cli.devdb import DevPostgres
from app.domain.job import ClaimedJob
from app.domain.outcome import OutcomeKind
from tests.support.drivers import LEASE, PostgresEnv, postgres_env
from tests.support.outage import as_administrator
from tests.support.postgres import migrate
from tests.support.processes import eventually

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

MOMENT = timedelta(seconds=1)


async def _fail_over(server: DevPostgres, env: PostgresEnv) -> None:
    """Let a standby follow the server's end, and promote it."""
    await env.engine.dispose(close=False)  # its connections are ended; that is not what this is about
    await asyncio.to_thread(server.stop, "immediate")
    signals = server.cluster.data / "standby.signal", server.cluster.data / "promote"
    for path in signals[:1]:
        path.touch()
        server.cluster.account.owns(path)
    await asyncio.to_thread(server.start)
    signals[1].touch()
    server.cluster.account.owns(signals[1])
    assert server.pid is not None
    os.kill(server.pid, signal.SIGUSR1)

    async def serves() -> bool:
        try:
            ((in_recovery,),) = await as_administrator(server, "select pg_is_in_recovery()")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return not in_recovery

    await eventually(serves, "the standby is promoted")


async def _outcomes(env: PostgresEnv, held: ClaimedJob) -> list[OutcomeKind]:
    return [one.outcome for one in await env.ledger(held.token.job_id)]


async def test_a_worker_that_could_not_renew_before_a_promotion_has_one_lease_to_say_that_it_is_there(
    own_postgres: DevPostgres,
) -> None:
    """The server's start is long past, and whoever starts now has seen no outage."""
    await migrate(own_postgres.dsn())
    async with postgres_env(own_postgres.dsn(), datetime.now(UTC)) as env:
        there, gone = await env.running(), await env.running()
        await _fail_over(own_postgres, env)
        await env.advance(2 * LEASE)
        await env.register()
        assert not (await env.driver.due()).must_reap
        assert await env.driver.reap() == ()
        await env.advance(LEASE - MOMENT)
        assert await env.driver.reap() == ()
        await env.driver.surrender(there.token.worker_id)
        await env.advance(MOMENT)
        assert (await env.driver.due()).must_reap
        assert [one.job_id for one in await env.driver.reap()] == [gone.token.job_id]
        assert await _outcomes(env, there) == [OutcomeKind.LEASE_LOST]
        assert await _outcomes(env, gone) == [OutcomeKind.CRASHED]


async def test_a_lease_that_outlived_the_promotion_says_when_it_was_at_the_latest(own_postgres: DevPostgres) -> None:
    await migrate(own_postgres.dsn())
    now = datetime.now(UTC)
    async with postgres_env(own_postgres.dsn(), now - LEASE / 2) as env:
        gone = await env.running()
        survivor = await env.register()
        await _fail_over(own_postgres, env)
        for leases in (0.4, 1.2):
            await env.set_clock(now + leases * LEASE)
            assert (await env.renew(survivor)).is_held
        await env.set_clock(now + 1.9 * LEASE)
        assert await env.driver.reap() == (), "the promotion may have been less than a lease ago"
        await env.set_clock(now + 3 * LEASE)
        assert [one.job_id for one in await env.driver.reap()] == [gone.token.job_id]


async def test_who_has_renewed_since_the_promotion_and_stopped_is_gone(own_postgres: DevPostgres) -> None:
    await migrate(own_postgres.dsn())
    async with postgres_env(own_postgres.dsn(), datetime.now(UTC)) as env:
        gone = await env.running()
        await _fail_over(own_postgres, env)
        await env.set_clock(datetime.now(UTC))
        assert (await env.renew(gone.token.worker_id)).is_held
        await env.advance(LEASE + MOMENT)
        assert [one.job_id for one in await env.driver.reap()] == [gone.token.job_id]
