"""A worker that freezes within a step's transaction, its connection open: its claim is taken over all the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from app.domain.errors import DriverUnavailable
from app.domain.step import StepKind
from app.drivers.postgres import connect, step_transaction
from app.drivers.postgres.driver import PostgresDriver
from tests.conformance.runs import a_sleep, a_step, steps, suspend
from tests.postgres.pages import administrator
from tests.support.drivers import postgres_env
from tests.support.processes import eventually
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.postgres

_SUSPENDS = "least(j.created_at, j.events_from) as since"
_FENCED = "idle_in_transaction_session_timeout', ("


async def test_a_claim_locked_by_the_fence_of_a_frozen_worker_is_reaped_soon(database_url: str, tmp_path: Path) -> None:
    """The server ends its session once it has idled for a lease, a short one here: the test need not wait for it."""
    async with (
        postgres_env(database_url) as others,
        proxy_to(database_url, tmp_path) as proxy,
        postgres_env(proxy.url) as frozen,
    ):
        held = await frozen.running()
        await others.execute("update outlast.worker set lease_ms = 50")
        fenced = proxy.hold_reply(_FENCED)

        async def book() -> None:
            step = a_step("book", kind=StepKind.TRANSACTION)
            async with frozen.driver.step_transaction(held.token, step) as session:
                await session.execute(text("select 1"))

        booking = asyncio.create_task(book())
        await fenced.until_caught()
        await others.vanish()

        async def is_reaped() -> bool:
            return [one.job_id for one in await others.driver.reap()] == [held.token.job_id]

        await eventually(is_reaped, "the claim is taken over")
        fenced.release()
        with pytest.raises(DriverUnavailable):
            await booking
        assert await steps(others, held.token.job_id) == []


@pytest.mark.parametrize(("lease_ms", "pause"), [(30_000, "10s"), (10_001, "10s"), (2_000, "2s")])
async def test_a_fence_lets_its_session_idle_for_ten_seconds_or_the_lease_if_that_is_shorter(
    database_url: str, lease_ms: int, pause: str
) -> None:
    async with postgres_env(database_url) as env:
        token = (await env.running(await env.register(lease_ms=lease_ms))).token
        binds = {"job_id": token.job_id, "seq": token.fence, "claim_no": token.claim_no, "worker": token.worker_id}
        assert isinstance(env.driver, PostgresDriver)
        db = env.driver._db
        async with db.engine.connect() as connection:
            fenced = step_transaction._statement(db, step_transaction.FENCE, *binds)
            row = (await connection.execute(fenced, binds)).one()
        assert (row[0], row[1]) == (token.job_id, pause)


async def test_a_claim_locked_by_a_worker_frozen_inside_a_statement_is_reaped_soon(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared, not yet run: no statement that lasts and no session that idles, so that only one limit ends it."""
    async with postgres_env(database_url) as others, proxy_to(database_url, tmp_path) as proxy:
        monkeypatch.setattr(connect, "TRANSACTION_TIMEOUT", timedelta(milliseconds=500))
        async with postgres_env(proxy.url) as frozen:
            held = await frozen.running()
            prepared = proxy.hold_reply(_SUSPENDS)
            suspending = asyncio.create_task(suspend(frozen, held, a_sleep()))
            await prepared.until_caught()
            await others.vanish()
            assert await others.driver.reap() == (), "its claim is locked"
            async with administrator(database_url) as admin:
                has_limit = await admin.fetchval("select current_setting('server_version_num')::int >= 170000")
            if not has_limit:  # a server before 17: the claim comes back when the connection ends
                proxy.cut()

            async def is_reaped() -> bool:
                return [one.job_id for one in await others.driver.reap()] == [held.token.job_id]

            await eventually(is_reaped, "the claim is taken over")
            prepared.release()
            with pytest.raises(DriverUnavailable):
                await suspending
