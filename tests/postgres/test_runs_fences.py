"""What runs write is compared part by part with the claim, and times are never behind where a wake looks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.job import ClaimToken, WorkerId
from app.domain.outcome import DeadLettered, SettleAnswer, Suspended
from app.domain.state import DeadReason, State
from app.domain.step import NewNotes
from app.drivers.postgres.waits import wake_parents
from tests.conformance.runs import (
    HOUR,
    MINUTE,
    a_sleep,
    a_step,
    called,
    die,
    enlist,
    order,
    state_of,
    steps,
    suspended,
    the_wait,
)
from tests.conformance.versions import diverged, handed_back
from tests.support.drivers import ERROR, PostgresEnv, postgres_env

pytestmark = pytest.mark.postgres


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url) as opened:
        yield opened


def others(token: ClaimToken, worker: WorkerId) -> list[ClaimToken]:
    """Give tokens that differ from a claim's in one part each."""
    return [
        token._replace(fence=token.fence + 1),
        token._replace(claim_no=token.claim_no + 1),
        token._replace(worker_id=worker),
    ]


async def test_a_token_that_differs_in_one_part_writes_nothing(store: PostgresEnv) -> None:
    held = await store.running(await enlist(store))
    for token in others(held.token, await enlist(store)):
        assert not await store.driver.record_step(token, a_step())
        assert await store.driver.note([NewNotes(token, ("line",), (0.5, None))]) == 0
        assert await store.settle(token, Suspended(waits=(a_sleep(),))) is SettleAnswer.REAPED
        assert await store.settle(token, diverged()) is SettleAnswer.REAPED
    assert await state_of(store, held.token.job_id) is State.RUNNING
    assert await steps(store, held.token.job_id) == []
    view = await store.driver.run(held.token.job_id)
    assert view is not None
    assert (view.lines, view.progress) == ((), None)


async def test_a_time_that_has_passed_is_now_so_that_a_wake_that_has_looked_on_meets_it(store: PostgresEnv) -> None:
    assert await store.driver.wake() == 0
    await store.advance(HOUR)
    assert await store.driver.wake() == 0
    held = await suspended(store, a_sleep(until=store.now() - HOUR))
    assert (await the_wait(store, held.token.job_id)).due_at == store.now()
    assert await store.driver.wake() == 1


async def test_a_run_that_suspended_has_started(store: PostgresEnv) -> None:
    """No row of the ledger says so."""
    held = await suspended(store, a_sleep(), max_queue_time=MINUTE)
    await store.advance(HOUR)
    assert await store.driver.wake() == 1
    assert await store.driver.expire() == ()
    assert await state_of(store, held.token.job_id) is State.READY


async def test_a_child_that_lives_again_by_the_time_its_end_is_told_wakes_nobody(store: PostgresEnv) -> None:
    """An operator may be as quick as that."""
    worker = await enlist(store)
    parent, child = await called(store, worker)
    await store.close_attempt(child.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))  # not told
    await store.driver.retry(child.token.job_id)
    driver: Any = store.driver
    assert await wake_parents(driver._db, [child.token.job_id]) == 0
    assert await state_of(store, parent.token.job_id) is State.SUSPENDED


async def test_a_run_is_told_of_a_failed_child_once(store: PostgresEnv) -> None:
    """It goes on to other things; that the child fails again after a retry is nothing to it."""
    worker = await enlist(store)
    parent, child = await called(store, worker)
    await die(store, child)
    again = await store.claim_one(worker)
    assert again.token.job_id == parent.token.job_id
    await store.close_attempt(again.token, Suspended(waits=(a_sleep(number=1),)))
    driver: Any = store.driver
    assert await wake_parents(driver._db, [child.token.job_id]) == 0
    assert await state_of(store, parent.token.job_id) is State.SUSPENDED


async def test_a_handed_back_job_with_another_life_is_for_everybody(store: PostgresEnv) -> None:
    """Cancelled and retried, under the very claim number it was handed back with."""
    held, _, new = await handed_back(store)
    await store.driver.cancel(held.token.job_id, reason="no")
    await store.driver.retry(held.token.job_id)
    await store.advance(HOUR)
    assert await store.driver.release_due() == 0
    assert await order(store, new) == [held.token.job_id]
