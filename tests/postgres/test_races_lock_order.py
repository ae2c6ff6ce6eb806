"""A settle and a surrender lock claims in the order of their ids even where the plan is the server's to choose."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from app.domain.job import ClaimToken, JobId, WorkerId
from app.domain.outcome import Completed, SettleAnswer, Settlement
from tests.postgres.arena import Arena, Seat, Started

pytestmark = pytest.mark.postgres

T = TypeVar("T")


async def _reads_the_table(seat: Seat) -> None:
    """Let a seat's plans be the server's, and let the server read tables in their own order."""
    for name, value in (("indexscan", "off"), ("bitmapscan", "off"), ("seqscan", "on")):
        await seat.connection.execute(f"set enable_{name} = {value}")


async def _claimed_the_other_way_round(arena: Arena, worker: WorkerId) -> tuple[ClaimToken, ClaimToken]:
    """Give two claims by their ids; the second's row lies before the first's in the table."""
    ids = await arena.enqueue(priority=9), await arena.enqueue(priority=0)
    second, first = (await arena.claim_one(worker)).token, (await arena.claim_one(worker)).token
    assert (first.job_id, second.job_id) == ids
    return first, second


async def _behind_the_first(
    arena: Arena, gate: Seat, first: ClaimToken, verb: Callable[[Seat], Coroutine[Any, Any, T]]
) -> tuple[Started[T], list[JobId]]:
    """Start a verb that finds the first claim locked; gives it and the jobs whose claims it has not locked by then."""
    await gate.connection.execute("select from outlast.running where job_id = $1 for update", first.job_id)
    running = await arena.start(verb)
    await running.is_blocked_by(gate)
    free = await arena.fetch("select job_id from outlast.running for update skip locked")
    return running, [row[0] for row in free]


@pytest.mark.parametrize("plans_are_ours", [True, False])
@pytest.mark.parametrize("is_keyed", [True, False])
async def test_a_settle_on_a_plan_of_the_servers_own_locks_claims_by_their_ids(
    arena: Arena, *, plans_are_ours: bool, is_keyed: bool
) -> None:
    worker = await arena.register()
    first, second = await _claimed_the_other_way_round(arena, worker)
    both = [Settlement(token, Completed(), is_keyed) for token in (first, second)]

    async def settle(seat: Seat) -> tuple[SettleAnswer, ...]:
        await _reads_the_table(seat)
        arena.trust_plans(seat, is_ours=plans_are_ours)
        return await seat.driver.settle(both)

    async with arena.holding() as gate:
        settling, free = await _behind_the_first(arena, gate, first, settle)
        await gate.rollback()
    # Where plans are believed to be ours, the one of the table takes the second before it waits for the first.
    assert free == ([] if plans_are_ours else [second.job_id])
    assert await settling.result() == (SettleAnswer.SETTLED, SettleAnswer.SETTLED)


async def test_a_surrender_on_a_plan_of_the_servers_own_locks_claims_by_their_ids(arena: Arena) -> None:
    worker = await arena.register()
    first, second = await _claimed_the_other_way_round(arena, worker)

    async def surrender(seat: Seat) -> int:
        await _reads_the_table(seat)
        return len(await seat.driver.surrender(worker))

    async with arena.holding() as gate:
        surrendering, free = await _behind_the_first(arena, gate, first, surrender)
        await gate.rollback()
    assert free == [second.job_id]
    assert await surrendering.result() == 2


async def test_the_form_that_locks_first_settles_a_claim_that_was_marked_meanwhile(arena: Arena) -> None:
    """What it locked is a newer row than the one its snapshot shows."""
    worker = await arena.register()
    token = (await arena.running(worker)).token

    async def settle(seat: Seat) -> SettleAnswer:
        arena.trust_plans(seat, is_ours=False)
        return await seat.settle(token, Completed())

    async with arena.holding() as marker:
        assert await marker.driver.isolate(token)
        settling = await arena.start(settle)
        await settling.is_blocked_by(marker)
        await marker.commit()
    assert await settling.result() is SettleAnswer.SETTLED
    assert await arena.bucket(token.job_id) == "finished"
