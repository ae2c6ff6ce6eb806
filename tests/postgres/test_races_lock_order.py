"""A settle locks claims in the order of their ids even where the plan is the server's to choose."""

from __future__ import annotations

import pytest

from app.domain.outcome import Completed, SettleAnswer, Settlement
from tests.postgres.arena import Arena, Seat

pytestmark = pytest.mark.postgres


async def _reads_the_table(seat: Seat) -> None:
    """Let a seat's plans be the server's, and let the server read tables in their own order."""
    for name, value in (("indexscan", "off"), ("bitmapscan", "off"), ("seqscan", "on")):
        await seat.connection.execute(f"set enable_{name} = {value}")


@pytest.mark.parametrize("plans_are_ours", [True, False])
@pytest.mark.parametrize("is_keyed", [True, False])
async def test_a_settle_on_a_plan_of_the_servers_own_locks_claims_by_their_ids(
    arena: Arena, *, plans_are_ours: bool, is_keyed: bool
) -> None:
    worker = await arena.register()
    first, second = await arena.enqueue(priority=9), await arena.enqueue(priority=0)
    # Claimed the other way round: the second's row lies before the first's in the table.
    tokens = {job.token.job_id: job.token for job in (await arena.claim_one(worker), await arena.claim_one(worker))}
    assert list(tokens) == [second, first]
    both = [Settlement(tokens[job_id], Completed(), is_keyed) for job_id in (first, second)]

    async def settle(seat: Seat) -> tuple[SettleAnswer, ...]:
        await _reads_the_table(seat)
        arena.trust_plans(seat, is_ours=plans_are_ours)
        return await seat.driver.settle(both)

    async with arena.holding() as gate:
        await gate.connection.execute("select from outlast.running where job_id = $1 for update", first)
        settling = await arena.start(settle)
        await settling.is_blocked_by(gate)
        free = await arena.fetch("select job_id from outlast.running for update skip locked")
        await gate.rollback()
    # Where plans are believed to be ours, the one of the table takes the second before it waits for the first.
    assert [row[0] for row in free] == ([] if plans_are_ours else [second])
    assert await settling.result() == (SettleAnswer.SETTLED, SettleAnswer.SETTLED)


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
