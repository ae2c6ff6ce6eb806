"""The judge of who is claimed first, on a real history: what is not committed waits for nobody, what is locked does.

Rolling restarts are held to its word. Here the instants between a write and its commit are made to last.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import JobId
from app.domain.outcome import Suspended
from tests.faults.checkers import resumed_before_new
from tests.faults.departures import resumed, taken
from tests.faults.history import audit, writes
from tests.postgres.arena import Arena, Seat

pytestmark = pytest.mark.postgres


async def snoozed(arena: Arena) -> JobId:
    """Give a job that a body snoozed and whose time has come."""
    token = (await arena.running()).token
    await arena.close_attempt(token, Suspended(delay=timedelta()))
    return token.job_id


async def claimed(arena: Arena, seat: Seat | None = None) -> JobId:
    job = await (seat or arena).claim_one(await arena.register())
    return job.token.job_id


async def test_a_new_job_may_be_claimed_before_a_promotion_is_committed(arena: Arena) -> None:
    await audit(arena)
    woken = await snoozed(arena)
    async with arena.holding() as promoter:
        await promoter.connection.fetchval("select pg_current_xact_id()")
        new = await arena.enqueue()  # a younger transaction, and over: the promoter's is below what a snapshot spans
        await promoter.driver.promote()
        assert await claimed(arena) == new
        await promoter.commit()
    assert await claimed(arena) == woken
    history = await writes(arena)
    (waits,) = resumed(history)
    assert waits.job == woken
    assert [new.written < waits.visible for new in taken(history)] == [True, True], "its own first claim, the new one"
    resumed_before_new([waits], taken(history))


async def test_a_new_job_claimed_past_a_snoozed_one_that_is_there_is_seen(arena: Arena) -> None:
    await audit(arena)
    woken = await snoozed(arena)
    await arena.driver.promote()
    first, second = await arena.enqueue(), await arena.enqueue()
    async with arena.holding() as locker:
        assert await claimed(arena, locker) == woken
        assert await claimed(arena) == first
        await locker.rollback()
    assert await claimed(arena) == woken
    assert await claimed(arena) == second
    history = await writes(arena)
    with pytest.raises(AssertionError, match=f"{first} is new and was claimed before {woken}"):
        resumed_before_new(resumed(history), taken(history))
