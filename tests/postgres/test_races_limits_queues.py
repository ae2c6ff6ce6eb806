"""Queues of which only so many jobs run, and limited jobs in them: admissions and claims count under one lock."""

from __future__ import annotations

import asyncio

import pytest

from app.domain.errors import JobStateConflict, SlotLost
from app.domain.job import WorkerId
from app.domain.limit import Admitted
from app.domain.outcome import Completed
from app.domain.queue import QueueChange
from app.drivers.postgres import gate
from app.drivers.postgres.claim_limited import PATIENCE
from tests.conformance.gated import admit_one, declare, held_by, keyed, limited, request
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import QUEUE, new_job

pytestmark = pytest.mark.postgres

ONE = QueueChange(concurrency=1)


async def looked(seat: Seat, worker: WorkerId) -> Admitted:
    return await seat.driver.admit(request(worker))


async def one_place(arena: Arena) -> tuple[WorkerId, WorkerId]:
    """Give two workers of a queue with one place, a limited job with room of its own in it, and a plain one."""
    await declare(arena, 10)
    await arena.driver.set_queue(QUEUE, ONE)
    await limited(arena)
    await arena.driver.enqueue(new_job())
    return await arena.register(), await arena.register()


async def running(arena: Arena) -> int:
    return (await arena.driver.queue_facts(QUEUE)).running


async def test_a_claim_behind_an_admission_counts_what_was_admitted(arena: Arena) -> None:
    one, other = await one_place(arena)
    async with arena.holding() as first:
        assert len((await looked(first, one)).jobs) == 1
        second = await arena.start(lambda seat: seat.claim(other))
        await second.is_blocked_by(first)
        await first.commit()
    assert await second.result() == ()
    assert await running(arena) == 1


async def test_an_admission_behind_a_claim_counts_what_was_claimed(arena: Arena) -> None:
    one, other = await one_place(arena)
    async with arena.holding() as first:
        assert len(await first.claim(one)) == 1
        second = await arena.start(lambda seat: looked(seat, other))
        await second.is_blocked_by(first)
        await first.commit()
    assert (await second.result()).jobs == ()
    assert await running(arena) == 1


async def test_an_admission_has_the_place_of_a_claim_that_is_rolled_back(arena: Arena) -> None:
    one, other = await one_place(arena)
    async with arena.holding() as first:
        await first.claim(one)
        second = await arena.start(lambda seat: looked(seat, other))
        await second.is_blocked_by(first)
        await first.rollback()
    assert len((await second.result()).jobs) == 1
    assert await running(arena) == 1


async def test_of_many_at_once_never_more_run_than_may(arena: Arena) -> None:
    one, other = await one_place(arena)
    await limited(arena, 20)
    await arena.driver.enqueue_many([new_job() for _ in range(20)])
    for _ in range(10):
        admitted = [arena.driver.admit(request(worker)) for worker in (one, other)]
        claimed = [arena.claim(worker) for worker in (one, other)]
        looks, claims = await asyncio.gather(asyncio.gather(*admitted), asyncio.gather(*claimed))
        assert await running(arena) == 1
        (held,) = [*(job for look in looks for job in look.jobs), *(job for claim in claims for job in claim)]
        await arena.close_attempt(held.token, Completed())
        await arena.driver.free_slots((held.token,))


async def test_a_queue_whose_lock_somebody_keeps_holds_no_other_queue_up(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.drivers.postgres.gate.PATIENCE", PATIENCE / 20)
    one, other = await one_place(arena)
    (elsewhere,) = await limited(arena, queue="mail", limits=[keyed("x")])
    async with arena.holding() as first:
        await first.claim(one)
        answer = await arena.driver.admit(request(other, queues=(QUEUE, "mail")))
        assert [job.token.job_id for job in answer.jobs] == [elsewhere]
        assert answer.is_contended
        await first.rollback()


async def test_a_job_whose_queue_is_limited_or_paused_between_look_and_decision_is_not_admitted(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    await declare(arena, 10)
    worker = await arena.register()
    (job_id,) = await limited(arena)
    decide = gate._decide
    changes = [
        lambda: arena.driver.set_queue(QUEUE, ONE),
        lambda: arena.driver.pause_queue(QUEUE, by="ops"),
    ]

    async def late(*given: object) -> object:
        if changes:
            await changes.pop(0)()
        return await decide(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(gate, "_decide", late)
    assert (await arena.driver.admit(request(worker))).jobs == ()
    assert (await arena.driver.admit(request(worker))).jobs == ()
    await arena.driver.resume_queue(QUEUE)
    (held,) = (await arena.driver.admit(request(worker))).jobs
    assert (held.token.job_id, held.is_limited) == (job_id, True)


async def test_of_two_who_take_a_slot_back_the_second_is_told_that_it_is_gone(arena: Arena) -> None:
    await declare(arena)
    await limited(arena)
    held = await admit_one(arena, await arena.register())
    with pytest.raises(JobStateConflict):
        await arena.driver.release_slots(held.token.job_id)
    await arena.close_attempt(held.token, Completed())
    async with arena.holding() as first:
        assert len(await first.driver.release_slots(held.token.job_id)) == 1
        second = await arena.start(lambda seat: seat.driver.release_slots(held.token.job_id))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(SlotLost):
        await second.result()
    assert await held_by(arena) == []
