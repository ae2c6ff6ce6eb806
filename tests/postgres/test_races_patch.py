"""A patch against what moves the same token, or patches it: nothing comes in between its look and its commit."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import Action
from app.domain.edit import JobPatch, version_of
from app.domain.errors import JobNotFound, JobStateConflict, PreconditionFailed
from app.domain.job import JobId
from app.domain.outcome import CancelVerdict, Held
from app.domain.state import State
from tests.conformance.runs import a_sleep, suspended
from tests.postgres.arena import Arena, Seat, Started
from tests.support.audit import an_entry, outcomes

pytestmark = pytest.mark.postgres

MINUTE = timedelta(minutes=1)


async def _patch(seat: Any, job_id: JobId, *, versions: frozenset[str] | None = None, **fields: Any) -> None:
    audit = an_entry(Action.JOB_UPDATE, job_id)
    await seat.driver.patch(job_id, JobPatch(**fields), versions=versions, audit=audit)


async def test_of_two_patches_of_one_version_the_second_waits_and_is_refused(arena: Arena) -> None:
    job_id = await arena.enqueue()
    seen = frozenset({version_of(await arena.describe(job_id))})
    async with arena.holding() as first:
        await _patch(first, job_id, versions=seen, tags=("a",))
        second = await arena.start(lambda seat: _patch(seat, job_id, versions=seen, tags=("b",)))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(PreconditionFailed):
        await second.result()
    assert (await arena.describe(job_id)).tags == ("a",)
    assert await outcomes(arena.driver, job_id) == [("job.update", "done")]


async def test_a_patch_behind_one_that_moved_the_token_finds_it_again(arena: Arena) -> None:
    job_id = await arena.enqueue()
    async with arena.holding() as first:
        await _patch(first, job_id, priority=1)
        second = await arena.start(lambda seat: _patch(seat, job_id, tags=("b",)))
        await second.is_blocked_by(first)
        await first.commit()
    await second.result()
    view = await arena.describe(job_id)
    assert (view.priority, view.tags) == (1, ("b",))


async def test_a_claim_passes_over_what_is_being_patched(arena: Arena) -> None:
    job_id, other = await arena.enqueue(), await arena.enqueue()
    worker = await arena.register()
    async with arena.holding() as operator:
        await _patch(operator, job_id, priority=0)
        claimed = await arena.at_once(lambda seat: seat.claim(worker))
        assert [job.token.job_id for job in claimed] == [other]
        await operator.commit()
    assert (await arena.claim_one(worker)).priority == 0


async def test_a_claim_finds_a_job_wherever_a_patch_has_put_it(arena: Arena) -> None:
    """It has learnt below which numbers nothing can come; the patched job has a new one."""
    worker = await arena.register()
    job_id = await arena.enqueue(priority=9)
    for _ in range(3):
        await arena.enqueue(priority=1)
    await arena.claim(worker, room=3)
    await _patch(arena, job_id, priority=1)
    assert (await arena.claim_one(worker)).token.job_id == job_id


async def test_a_patch_behind_a_claim_is_refused(arena: Arena) -> None:
    job_id = await arena.enqueue()
    worker = await arena.register()
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        patching = await arena.start(lambda seat: _patch(seat, job_id, priority=0))
        await patching.is_blocked_by(claimer)
        await claimer.commit()
    with pytest.raises(JobStateConflict) as refused:
        await patching.result()
    assert refused.value.details["state"] == State.RUNNING
    assert (await arena.describe(job_id)).priority == 5


async def test_a_patch_behind_a_claim_that_rolls_back_takes_place(arena: Arena) -> None:
    job_id = await arena.enqueue()
    worker = await arena.register()
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        patching = await arena.start(lambda seat: _patch(seat, job_id, priority=0))
        await patching.is_blocked_by(claimer)
        await claimer.rollback()
    await patching.result()
    assert (await arena.claim_one(worker)).priority == 0


@pytest.mark.parametrize("fields", [{"priority": 0}, {"tags": ("a",)}], ids=["priority", "tags"])
async def test_a_promote_passes_over_what_is_being_patched(arena: Arena, fields: dict[str, Any]) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    await arena.advance(2 * MINUTE)
    async with arena.holding() as operator:
        await _patch(operator, job_id, **fields)
        assert await arena.at_once(lambda seat: seat.driver.promote()) == 0
        await operator.commit()
    assert await arena.driver.promote() == 1
    assert await arena.bucket(job_id) == "ready"


async def test_a_patch_behind_a_promote_finds_the_job_ready(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=MINUTE)
    await arena.advance(2 * MINUTE)
    later = arena.now() + MINUTE
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        patching = await arena.start(lambda seat: _patch(seat, job_id, run_at=later))
        await patching.is_blocked_by(promoter)
        await promoter.commit()
    await patching.result()
    view = await arena.describe(job_id)
    assert (view.state, view.run_at) == (State.DELAYED, later)


async def test_a_patch_behind_a_promote_holds_the_job_where_it_is_now(arena: Arena) -> None:
    """It changes nothing of the token, and nobody takes that from under it all the same."""
    job_id = await arena.enqueue(delay=MINUTE)
    await arena.advance(2 * MINUTE)
    worker = await arena.register()
    async with arena.holding() as promoter, arena.holding() as operator:
        assert await promoter.driver.promote() == 1
        patching = Started(arena, operator, asyncio.create_task(_patch(operator, job_id, tags=("a",))))
        await patching.is_blocked_by(promoter)
        await promoter.commit()
        await patching.result()
        assert await arena.at_once(lambda seat: seat.claim(worker)) == ()
        await operator.commit()
    assert (await arena.claim_one(worker)).tags == ("a",)


@pytest.mark.parametrize("delay", [None, MINUTE], ids=["ready", "delayed"])
async def test_a_cancel_behind_a_patch_takes_the_job_from_its_new_place(arena: Arena, delay: timedelta | None) -> None:
    job_id = await arena.enqueue(delay=delay)
    async with arena.holding() as operator:
        await _patch(operator, job_id, priority=0, run_at=arena.now() + 2 * MINUTE)
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="stop"))
        await cancelling.is_blocked_by(operator)
        await operator.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_BEFORE_START
    assert await arena.bucket(job_id) == "finished"


async def test_a_cancel_behind_a_patch_of_the_priority_takes_the_job_from_its_new_place(arena: Arena) -> None:
    job_id = await arena.enqueue()
    async with arena.holding() as operator:
        await _patch(operator, job_id, priority=0)
        cancelling = await arena.start(lambda seat: seat.driver.cancel(job_id, reason="stop"))
        await cancelling.is_blocked_by(operator)
        await operator.commit()
    assert await cancelling.result() is CancelVerdict.CANCELLED_BEFORE_START
    assert await arena.bucket(job_id) == "finished"


async def test_a_patch_behind_a_cancel_is_refused(arena: Arena) -> None:
    job_id = await arena.enqueue()
    async with arena.holding() as operator:
        await operator.driver.cancel(job_id, reason="stop")
        patching = await arena.start(lambda seat: _patch(seat, job_id, priority=0))
        await patching.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobStateConflict) as refused:
        await patching.result()
    assert refused.value.details["state"] == State.CANCELLED


async def test_a_patch_behind_a_retry_changes_the_job_that_is_ready_again(arena: Arena) -> None:
    job_id = await arena.enqueue()
    await arena.driver.cancel(job_id, reason="stop")
    async with arena.holding() as operator:
        await operator.driver.retry(job_id)
        patching = await arena.start(lambda seat: _patch(seat, job_id, priority=0))
        await patching.is_blocked_by(operator)
        await operator.commit()
    await patching.result()
    assert (await arena.claim_one(await arena.register())).priority == 0


async def test_a_patch_behind_a_wake_changes_the_run_that_is_ready(arena: Arena) -> None:
    held = await suspended(arena, a_sleep(delay=MINUTE))
    await arena.advance(2 * MINUTE)
    async with arena.holding() as waker:
        assert await waker.driver.wake() == 1
        patching = await arena.start(lambda seat: _patch(seat, held.token.job_id, priority=0))
        await patching.is_blocked_by(waker)
        await waker.commit()
    await patching.result()
    assert await arena.bucket(held.token.job_id) == "ready"
    assert (await arena.fetch("select rank from outlast.ready"))[0]["rank"] == 0


async def test_a_wake_behind_a_patch_wakes_the_run_in_its_new_place(arena: Arena) -> None:
    held = await suspended(arena, a_sleep(delay=MINUTE))
    await arena.advance(2 * MINUTE)
    async with arena.holding() as operator:
        await _patch(operator, held.token.job_id, priority=0)
        waking = await arena.start(lambda seat: seat.driver.wake())
        await waking.is_blocked_by(operator)
        await operator.commit()
    assert await waking.result() == 1
    assert (await arena.fetch("select rank from outlast.ready"))[0]["rank"] == 0


async def test_a_release_behind_a_patch_of_a_held_job_makes_it_ready_in_its_new_place(arena: Arena) -> None:
    token = (await arena.running()).token
    await arena.close_attempt(token, Held(reason="does not fit"))
    async with arena.holding() as operator:
        await _patch(operator, token.job_id, priority=0)
        releasing = await arena.start(lambda seat: seat.driver.release_held(token.job_id))
        await releasing.is_blocked_by(operator)
        await operator.commit()
    await releasing.result()
    assert (await arena.claim_one(await arena.register())).priority == 0


async def test_a_patch_behind_a_delete_finds_no_job(arena: Arena) -> None:
    token = (await arena.running()).token
    await arena.close_attempt(token, Held(reason="does not fit"))

    async def patch(seat: Seat) -> None:
        await _patch(seat, token.job_id, priority=0)

    async with arena.holding() as operator:
        await operator.driver.delete(token.job_id)
        patching = await arena.start(patch)
        await patching.is_blocked_by(operator)
        await operator.commit()
    with pytest.raises(JobNotFound):
        await patching.result()


async def test_an_expire_passes_over_what_is_being_patched(arena: Arena) -> None:
    job_id = await arena.enqueue(max_queue_time=MINUTE)
    await arena.advance(2 * MINUTE)
    async with arena.holding() as operator:
        await _patch(operator, job_id, priority=0)
        assert await arena.at_once(lambda seat: seat.driver.expire()) == ()
        await operator.commit()
    assert [ended.job_id for ended in await arena.driver.expire()] == [job_id]
