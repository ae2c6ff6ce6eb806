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
from app.drivers.postgres.connect import IDLE_IN_TRANSACTION_TIMEOUT
from tests.conformance.runs import a_sleep, a_step, steps, suspend
from tests.postgres.pages import administrator
from tests.support.drivers import postgres_env
from tests.support.processes import eventually
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.postgres

_PROMISED = f"'{IDLE_IN_TRANSACTION_TIMEOUT.seconds}s', true)"
_SUSPENDS = "least(j.created_at, j.events_from) as since"
_AT_ONCE = "'1ms', true)"


async def test_a_claim_locked_by_the_fence_of_a_frozen_worker_is_reaped_soon(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its session: at once here, so that the test need not wait for it."""
    assert step_transaction.FENCE.count(_PROMISED) == 1
    monkeypatch.setattr(step_transaction, "FENCE", step_transaction.FENCE.replace(_PROMISED, _AT_ONCE))
    async with (
        postgres_env(database_url) as others,
        proxy_to(database_url, tmp_path) as proxy,
        postgres_env(proxy.url) as frozen,
    ):
        held = await frozen.running()
        fenced = proxy.hold_reply(_AT_ONCE)

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
