"""The form of a settle that locks first: as fenced as the usual one, and used only where plans are not ours."""

from __future__ import annotations

import pytest

from app.domain.outcome import Completed, SettleAnswer, Settlement
from app.drivers.postgres.lock_order import in_both_forms
from app.drivers.postgres.settle import SETTLE, SETTLE_DONE_IN_ORDER, SETTLE_IN_ORDER
from app.drivers.postgres.settle_and_claim import IN_ORDER
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import with_token

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_the_form_that_locks_first_settles_by_the_whole_token_and_by_nothing_less(
    arena: Arena, *, is_keyed: bool
) -> None:
    worker = await arena.register()
    one, two = (await arena.running(worker)).token, (await arena.running(worker)).token
    async with arena.holding() as seat:
        arena.trust_plans(seat, is_ours=False)
        for wrong in (
            with_token(one, fence=one.fence - 1),
            with_token(one, fence=two.fence),
            with_token(one, claim_no=one.claim_no + 1),
            with_token(one, worker_id=await arena.register()),
        ):
            (answer,) = await seat.driver.settle([Settlement(wrong, Completed(), is_keyed)])
            assert answer is not SettleAnswer.SETTLED
        assert await arena.bucket(one.job_id) == "running"
        both = [Settlement(token, Completed(), is_keyed) for token in (two, one)]
        assert set(await seat.driver.settle(both)) == {SettleAnswer.SETTLED}
        await seat.commit()
    assert [await arena.bucket(token.job_id) for token in (one, two)] == ["finished", "finished"]


async def test_the_form_that_locks_first_waits_for_no_other_claim(arena: Arena) -> None:
    worker = await arena.register()
    token, other = (await arena.running(worker)).token, (await arena.running(worker)).token

    async def settle(seat: Seat) -> SettleAnswer:
        arena.trust_plans(seat, is_ours=False)
        return await seat.settle(token, Completed())

    async with arena.holding() as gate:
        await gate.connection.execute("select from outlast.running where job_id = $1 for update", other.job_id)
        assert await arena.at_once(settle) is SettleAnswer.SETTLED


async def test_the_form_that_locks_first_waits_for_no_later_claim_of_its_job(arena: Arena) -> None:
    """Several statements of one transaction lock in order only while each keeps to claims that all of them see."""
    worker = await arena.register()
    stale = (await arena.running(worker)).token
    await arena.driver.release((stale,), cause="drain")
    later = (await arena.claim_one(worker)).token
    assert later.job_id == stale.job_id

    async def settle(seat: Seat) -> SettleAnswer:
        arena.trust_plans(seat, is_ours=False)
        return await seat.settle(stale, Completed())

    async with arena.holding() as gate:
        await gate.connection.execute("select from outlast.running where job_id = $1 for update", later.job_id)
        assert await arena.at_once(settle) is not SettleAnswer.SETTLED


def test_only_the_form_for_a_plan_of_the_servers_own_pays_for_a_lock() -> None:
    for settling in (SETTLE_IN_ORDER, SETTLE_DONE_IN_ORDER, *IN_ORDER.values()):
        assert "order by r.job_id for update" not in settling.usual
        assert settling.locking_first.count("order by r.job_id for update") == 1
    assert SETTLE_IN_ORDER.usual == SETTLE


def test_a_statement_that_settles_nothing_has_no_such_form() -> None:
    with pytest.raises(ValueError, match="settles nothing"):
        in_both_forms("select 1")
