"""Retry, promote and purge among themselves: the finished row decides between them, skipped or waited for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import JobDuplicate, JobNotFound, JobStateConflict
from app.domain.job import JobId
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena

pytestmark = pytest.mark.postgres

LONG_AGO = PurgeQuery(state=State.CANCELLED, older_than=timedelta(seconds=1))


async def test_of_two_retries_of_one_job_the_second_waits_and_finds_it_ready(arena: Arena) -> None:
    job_id = await _cancelled(arena)
    async with arena.holding() as first:
        await first.driver.retry(job_id)
        second = await arena.start(lambda seat: seat.driver.retry(job_id))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(JobStateConflict) as refused:
        await second.result()
    assert refused.value.details["state"] == State.READY
    assert await arena.bucket(job_id) == "ready"


async def test_of_two_retries_for_one_key_the_second_waits_and_its_job_stays_dead(arena: Arena) -> None:
    one, other = await _cancelled(arena, key="k"), await _cancelled(arena, key="k")
    async with arena.holding() as first:
        await first.driver.retry(one)
        second = await arena.start(lambda seat: seat.driver.retry(other))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(JobDuplicate) as refused:
        await second.result()
    assert refused.value.details["existing_id"] == one
    assert (await arena.bucket(one), await arena.bucket(other)) == ("ready", "finished")
    assert await arena.key_holder("k") == one


async def test_a_retry_for_a_key_whose_winner_rolls_back_wins_it(arena: Arena) -> None:
    one, other = await _cancelled(arena, key="k"), await _cancelled(arena, key="k")
    async with arena.holding() as first:
        await first.driver.retry(one)
        second = await arena.start(lambda seat: seat.driver.retry(other))
        await second.is_blocked_by(first)
        await first.rollback()
    await second.result()
    assert (await arena.bucket(one), await arena.bucket(other)) == ("finished", "ready")
    assert await arena.key_holder("k") == other


async def test_a_retry_and_a_promote_never_meet(arena: Arena) -> None:
    job_id = await _cancelled(arena)
    waiting = await arena.enqueue(delay=timedelta(seconds=1))
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as operator:
        await operator.driver.retry(job_id)
        assert await arena.at_once(lambda seat: seat.driver.promote()) == 1
        await operator.commit()
    assert (await arena.bucket(job_id), await arena.bucket(waiting)) == ("ready", "ready")


async def test_a_purge_passes_over_what_is_being_retried(arena: Arena) -> None:
    job_id, other = await _cancelled(arena), await _cancelled(arena)
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as operator:
        await operator.driver.retry(job_id)
        assert await arena.at_once(lambda seat: seat.driver.purge(LONG_AGO)) == 1
        await operator.commit()
    assert await arena.driver.purge(LONG_AGO) == 0
    assert (await arena.describe(job_id)).state is State.READY
    assert await arena.driver.describe(other) is None


async def test_a_retry_behind_a_purge_finds_no_job(arena: Arena) -> None:
    job_id = await _cancelled(arena, key="k")
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as purger:
        assert await purger.driver.purge(LONG_AGO) == 1
        retrying = await arena.start(lambda seat: seat.driver.retry(job_id))
        await retrying.is_blocked_by(purger)
        await purger.commit()
    with pytest.raises(JobNotFound):
        await retrying.result()
    assert await arena.key_holder("k") is None
    assert await arena.fetch("select from outlast.live_key") == []


async def test_two_promotes_make_every_job_ready_once_without_waiting(arena: Arena) -> None:
    jobs = [await arena.enqueue(delay=timedelta(seconds=1)) for _ in range(4)]
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as first:
        some = await first.driver.promote(batch=2)
        rest = await arena.at_once(lambda seat: seat.driver.promote())
        await first.commit()
    assert (some, rest) == (2, 2)
    assert [await arena.bucket(job_id) for job_id in jobs] == ["ready"] * 4


async def test_a_promote_and_a_purge_never_meet(arena: Arena) -> None:
    job_id = await _cancelled(arena)
    waiting = await arena.enqueue(delay=timedelta(seconds=1))
    await arena.advance(timedelta(seconds=2))
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        assert await arena.at_once(lambda seat: seat.driver.purge(LONG_AGO)) == 1
        await promoter.commit()
    assert await arena.bucket(waiting) == "ready"
    assert await arena.driver.describe(job_id) is None


async def test_two_purges_delete_every_job_once_without_waiting(arena: Arena) -> None:
    jobs = [await _cancelled(arena) for _ in range(4)]
    await arena.advance(timedelta(seconds=2))
    two = PurgeQuery(state=LONG_AGO.state, older_than=LONG_AGO.older_than, batch=2)
    async with arena.holding() as first:
        assert await first.driver.purge(two) == 2
        assert await arena.at_once(lambda seat: seat.driver.purge(LONG_AGO)) == 2
        await first.commit()
    assert [await arena.driver.describe(job_id) for job_id in jobs] == [None] * 4


async def _cancelled(arena: Arena, **fields: str) -> JobId:
    job_id = await arena.enqueue(**fields)
    await arena.driver.cancel(job_id, reason="first")
    return job_id
