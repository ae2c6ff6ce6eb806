"""Reap and renew against the verbs after them: the worker's row decides who lives, its claims follow."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import JobStateConflict
from app.domain.outcome import Completed, OutcomeKind, SettleAnswer
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena
from tests.support.drivers import LEASE

pytestmark = pytest.mark.postgres

DEAD_LONG_AGO = PurgeQuery(state=State.DEAD, older_than=timedelta(seconds=1))


async def test_two_reaps_take_every_claim_once_without_waiting(arena: Arena) -> None:
    worker = await arena.register()
    jobs = {(await arena.running(worker)).token.job_id for _ in range(4)}
    await arena.vanish()
    async with arena.holding() as first:
        some = await first.driver.reap(batch=2)
        rest = await arena.at_once(lambda seat: seat.driver.reap())
        await first.commit()
    late = await arena.driver.reap()
    taken = [reaped.job_id for reaped in (*some, *rest, *late)]
    assert sorted(taken) == sorted(jobs)
    assert [await arena.bucket(job_id) for job_id in jobs] == ["ready"] * 4
    assert [(await arena.describe(job_id)).counters.crashes for job_id in jobs] == [1] * 4


async def test_a_reap_passes_over_a_worker_that_is_being_renewed(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    async with arena.holding() as heart:
        assert (await heart.renew(worker, [token])).is_held
        # Seen by everybody but the renewal, the lease has passed.
        await arena.vanish()
        assert await arena.at_once(lambda seat: seat.driver.reap()) == ()
        await heart.commit()
    assert await arena.bucket(token.job_id) == "running"


async def test_a_renewal_behind_a_reap_is_refused(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    async with arena.holding() as reaper:
        await arena.advance(LEASE)
        (reaped,) = await reaper.driver.reap()
        # By the clock of the renewal's statement, which began earlier, the lease lasts.
        await arena.advance(-LEASE)
        renewing = await arena.start(lambda seat: seat.renew(worker, [token]))
        await renewing.is_blocked_by(reaper)
        await reaper.commit()
    assert not (await renewing.result()).is_held
    assert (reaped.job_id, reaped.outcome) == (token.job_id, OutcomeKind.CRASHED)
    assert not (await arena.renew(worker, [token])).is_held


async def test_a_retry_does_not_see_a_job_that_a_reap_ends_before_its_commit(arena: Arena) -> None:
    held = await arena.running(max_crashes=1, key="k")
    assert await arena.driver.isolate(held.token)
    await arena.vanish()
    job_id = held.token.job_id
    async with arena.holding() as reaper:
        (reaped,) = await reaper.driver.reap()
        with pytest.raises(JobStateConflict) as refused:
            await arena.at_once(lambda seat: seat.driver.retry(job_id))
        await reaper.commit()
    assert reaped.is_dead
    assert refused.value.details["state"] == State.RUNNING
    await arena.driver.retry(job_id)
    assert await arena.bucket(job_id) == "ready"
    assert await arena.key_holder("k") == job_id


async def test_a_retry_behind_a_reap_wins_the_key_the_dead_job_frees(arena: Arena) -> None:
    old = await arena.enqueue(key="k")
    await arena.driver.cancel(old, reason="first")
    held = await arena.running(max_crashes=1, key="k")
    assert await arena.driver.isolate(held.token)
    await arena.vanish()
    async with arena.holding() as reaper:
        assert [reaped.is_dead for reaped in await reaper.driver.reap()] == [True]
        retrying = await arena.start(lambda seat: seat.driver.retry(old))
        await retrying.is_blocked_by(reaper)
        await reaper.commit()
    await retrying.result()
    assert await arena.key_holder("k") == old


async def test_a_reap_and_a_promote_never_meet(arena: Arena) -> None:
    waiting = await arena.enqueue(delay=timedelta(seconds=1))
    token = (await arena.running()).token
    await arena.vanish()
    async with arena.holding() as reaper:
        assert len(await reaper.driver.reap()) == 1
        assert await arena.at_once(lambda seat: seat.driver.promote()) == 1
        await reaper.commit()
    assert (await arena.bucket(waiting), await arena.bucket(token.job_id)) == ("ready", "ready")


async def test_a_reap_and_a_purge_never_meet(arena: Arena) -> None:
    held = await arena.running(max_crashes=1)
    assert await arena.driver.isolate(held.token)
    await arena.vanish()
    async with arena.holding() as reaper:
        assert [reaped.is_dead for reaped in await reaper.driver.reap()] == [True]
        await arena.advance(timedelta(seconds=2))
        assert await arena.at_once(lambda seat: seat.driver.purge(DEAD_LONG_AGO)) == 0
        await reaper.commit()
    assert await arena.driver.purge(DEAD_LONG_AGO) == 1
    assert await arena.driver.describe(held.token.job_id) is None


async def test_of_two_renewals_the_second_waits_and_both_hold(arena: Arena) -> None:
    worker = await arena.register()
    async with arena.holding() as first:
        assert (await first.renew(worker)).is_held
        second = await arena.start(lambda seat: seat.renew(worker))
        await second.is_blocked_by(first)
        await first.commit()
    assert (await second.result()).is_held


async def test_a_renewal_and_a_retry_never_meet(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    await arena.driver.cancel(token.job_id, reason="first")
    async with arena.holding() as operator:
        await operator.driver.retry(token.job_id)
        assert (await arena.at_once(lambda seat: seat.renew(worker, [token]))).is_held
        await operator.commit()
    assert await arena.settle(token, Completed()) is not SettleAnswer.SETTLED
    assert await arena.bucket(token.job_id) == "ready"


async def test_a_renewal_and_a_promote_never_meet(arena: Arena) -> None:
    worker = await arena.register()
    job_id = await arena.enqueue(delay=timedelta(seconds=1))
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        assert (await arena.at_once(lambda seat: seat.renew(worker))).is_held
        await promoter.commit()
    assert await arena.bucket(job_id) == "ready"


async def test_a_renewal_and_a_purge_never_meet(arena: Arena) -> None:
    worker = await arena.register()
    held = await arena.running(worker)
    await arena.close_attempt(held.token, Completed())
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as purger:
        query = PurgeQuery(state=State.DONE, older_than=timedelta(seconds=1))
        assert await purger.driver.purge(query) == 1
        assert (await arena.at_once(lambda seat: seat.renew(worker, [held.token]))).is_held
        await purger.commit()
    assert await arena.driver.describe(held.token.job_id) is None
