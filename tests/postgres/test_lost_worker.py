"""A worker that was marked lost, or closed, stays so: also where its lease seems to last, as after a clock set back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outcome import Completed, SettleAnswer
from tests.postgres.arena import Arena

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("mark", ["lost_at", "closed_at"])
async def test_a_worker_that_is_out_can_do_nothing_whatever_its_lease_says(arena: Arena, mark: str) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    waiting = await arena.enqueue()
    await arena.execute(f"update outlast.worker set {mark} = outlast.clock() where id = {worker}")
    assert await arena.claim(worker) == ()
    assert await arena.settle(token, Completed()) is SettleAnswer.REAPED
    assert await arena.driver.release((token,), cause="test") == 0
    assert await arena.driver.reconcile(worker, ()) == 0
    assert not (await arena.renew(worker, (token,))).is_held
    assert await arena.abandon(worker, (token,), timedelta(seconds=1)) == 0
    assert (await arena.bucket(token.job_id), await arena.bucket(waiting)) == ("running", "ready")


async def test_a_worker_marked_lost_is_not_marked_again(arena: Arena) -> None:
    worker = await arena.register()
    await arena.vanish()
    await arena.driver.reap()
    first = await arena.fetch("select lost_at from outlast.worker where id = $1", worker)
    await arena.vanish()
    await arena.driver.reap()
    assert await arena.fetch("select lost_at from outlast.worker where id = $1", worker) == first
