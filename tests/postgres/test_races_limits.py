"""Admissions, slots given back and whatever meets them: never over-held, nobody forgotten, no other job ever waits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.limit import Admitted
from app.domain.outcome import CancelVerdict, Completed, SettleAnswer, Settlement
from app.domain.state import State
from tests.conformance.gated import ALL, admit, admit_one, declare, held_by, ids, keyed, limited, request
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import LEASE, new_job

pytestmark = pytest.mark.postgres

NOTHING = Admitted(is_contended=True)


async def look(seat: Seat, worker: WorkerId) -> Admitted:
    return await seat.driver.admit(request(worker))


async def known_key(arena: Arena, n: int = 1) -> tuple[WorkerId, JobId, JobId]:
    """Give a worker and two jobs of a key that has been used before, and is free."""
    await declare(arena, n)
    worker = await arena.register()
    await limited(arena)
    held = await admit_one(arena, worker)
    await arena.close_attempt(held.token, Completed())
    await arena.driver.free_slots((held.token,))
    first, second = await limited(arena, 2)
    return worker, first, second


async def holder_and_waiter(arena: Arena) -> tuple[WorkerId, ClaimedJob, JobId]:
    """Give a worker that runs the one job of a key, and a job that has not been looked at."""
    await declare(arena)
    worker = await arena.register()
    await limited(arena)
    held = await admit_one(arena, worker)
    (waiter,) = await limited(arena)
    return worker, held, waiter


async def test_two_admissions_of_one_key_never_give_more_than_it_has(arena: Arena) -> None:
    worker, first, second = await known_key(arena)
    async with arena.holding() as one:
        assert ids((await look(one, worker)).jobs) == [first]
        assert await arena.at_once(lambda seat: look(seat, worker)) == NOTHING
        await one.commit()
    assert await admit(arena, worker) == ()
    assert (await held_by(arena), await arena.bucket(second)) == ([first], "gate")


async def test_an_admission_that_is_taken_back_leaves_the_key_free(arena: Arena) -> None:
    worker, first, _ = await known_key(arena)
    async with arena.holding() as one:
        await look(one, worker)
        await one.rollback()
    assert ids(await admit(arena, worker)) == [first]
    assert await held_by(arena) == [first]


async def test_admissions_of_two_keys_go_side_by_side(arena: Arena) -> None:
    await declare(arena)
    worker = await arena.register()
    for key in "ab":
        await limited(arena, limits=[keyed(key)])
    for held in await admit(arena, worker):
        await arena.close_attempt(held.token, Completed())
        await arena.driver.free_slots((held.token,))
    (first,) = await limited(arena, limits=[keyed("a")])
    async with arena.holding() as one:
        assert ids((await look(one, worker)).jobs) == [first]
        (second,) = await limited(arena, limits=[keyed("b")])
        assert ids((await arena.at_once(lambda seat: look(seat, worker))).jobs) == [second]
        await one.commit()
    assert sorted(await held_by(arena)) == sorted([first, second])


async def test_a_job_of_two_keys_is_put_off_while_somebody_decides_about_one(arena: Arena) -> None:
    worker, first, second = await known_key(arena)
    await arena.driver.cancel(second, reason="stop")
    async with arena.holding() as one:
        assert ids((await look(one, worker)).jobs) == [first]
        (both,) = await limited(arena, limits=[keyed("other"), ALL])
        assert await arena.at_once(lambda seat: look(seat, worker)) == NOTHING
        await one.rollback()
    assert ids(await admit(arena, worker)) == [first]
    assert await arena.bucket(both) == "gate"


async def test_a_job_of_two_keys_alone_is_to_be_looked_at_again_while_somebody_has_one(arena: Arena) -> None:
    worker, held, waiter = await holder_and_waiter(arena)
    await arena.driver.cancel(waiter, reason="stop")
    (both,) = await limited(arena, limits=[keyed("other"), ALL])
    async with arena.holding() as giver:
        assert await giver.driver.free_slots((held.token,)) == 1
        assert await arena.at_once(lambda seat: look(seat, worker)) == NOTHING
        await giver.commit()
    assert ids(await admit(arena, worker)) == [both]


async def test_no_other_job_waits_for_a_key_that_is_decided_about(arena: Arena) -> None:
    worker, first, _ = await known_key(arena)
    running = [(await arena.running(worker)).token for _ in range(3)]
    async with arena.holding() as one:
        assert ids((await look(one, worker)).jobs) == [first]
        fresh = new_job()
        await arena.at_once(lambda seat: seat.driver.enqueue(fresh))
        assert ids(await arena.at_once(lambda seat: seat.driver.claim(request(worker, room=1)))) == [fresh.id]
        settled = await arena.at_once(lambda seat: seat.driver.settle([Settlement(running[0], Completed())]))
        assert settled == (SettleAnswer.SETTLED,)
        answers, claimed = await arena.at_once(
            lambda seat: seat.driver.settle_and_claim([Settlement(running[1], Completed())], request(worker))
        )
        assert (answers, claimed) == ((SettleAnswer.SETTLED,), ())
        await arena.at_once(lambda seat: seat.driver.cancel(running[2].job_id, reason="stop"))
        await one.commit()


async def test_a_limited_jobs_own_settle_waits_for_no_key_either(arena: Arena) -> None:
    worker, held, waiter = await holder_and_waiter(arena)
    async with arena.holding() as one:
        assert (await look(one, worker)).jobs == ()  # parks it, and has the key
        settled = await arena.at_once(lambda seat: seat.driver.settle([Settlement(held.token, Completed())]))
        assert settled == (SettleAnswer.SETTLED,)
        await one.commit()
    await arena.driver.free_slots((held.token,))
    assert ids(await admit(arena, worker)) == [waiter]


async def test_an_enqueue_of_a_limited_job_waits_for_no_key(arena: Arena) -> None:
    worker, _, _ = await known_key(arena)
    fresh = new_job(limits=(ALL,))
    async with arena.holding() as one:
        await look(one, worker)
        await arena.at_once(lambda seat: seat.driver.enqueue(fresh))
        await one.commit()
    assert await arena.bucket(fresh.id) == "gate"


async def test_a_slot_that_comes_back_while_a_job_is_parked_for_it_wakes_that_job(arena: Arena) -> None:
    worker, held, waiter = await holder_and_waiter(arena)
    async with arena.holding() as one:
        assert (await look(one, worker)).jobs == ()
        freeing = await arena.start(lambda seat: seat.driver.free_slots((held.token,)))
        await freeing.is_blocked_by(one)
        await one.commit()
    assert await freeing.result() == 1
    assert ids(await admit(arena, worker)) == [waiter]


async def test_a_slot_that_is_being_given_back_is_held_until_it_is(arena: Arena) -> None:
    worker, held, waiter = await holder_and_waiter(arena)
    async with arena.holding() as giver:
        assert await giver.driver.free_slots((held.token,)) == 1
        assert await arena.at_once(lambda seat: look(seat, worker)) == NOTHING
        await giver.rollback()
    assert await admit(arena, worker) == ()
    await arena.driver.free_slots((held.token,))
    assert ids(await admit(arena, worker)) == [waiter]


async def test_a_slot_given_back_twice_at_once_is_given_back_once(arena: Arena) -> None:
    worker, held, waiter = await holder_and_waiter(arena)
    async with arena.holding() as giver:
        assert await giver.driver.free_slots((held.token,)) == 1
        again = await arena.start(lambda seat: seat.driver.free_slots((held.token,)))
        await again.is_blocked_by(giver)
        await giver.commit()
    assert await again.result() == 0
    assert ids(await admit(arena, worker)) == [waiter]


async def test_a_sweep_and_the_worker_itself_give_a_slot_back_once(arena: Arena) -> None:
    _, held, waiter = await holder_and_waiter(arena)
    await arena.vanish()
    await arena.driver.reap()
    async with arena.holding() as sweeper:
        assert await sweeper.driver.sweep_slots() == 1
        again = await arena.start(lambda seat: seat.driver.free_slots((held.token,)))
        await again.is_blocked_by(sweeper)
        await sweeper.commit()
    assert await again.result() == 0
    other = await arena.register()
    assert ids(await admit(arena, other)) == [held.token.job_id]
    assert await arena.bucket(waiter) == "gate"


async def test_an_admission_passes_over_a_job_that_is_being_cancelled(arena: Arena) -> None:
    worker, first, second = await known_key(arena, 2)
    async with arena.holding() as operator:
        await operator.driver.cancel(first, reason="stop")
        assert ids((await arena.at_once(lambda seat: look(seat, worker))).jobs) == [second]
        await operator.rollback()
    assert ids(await admit(arena, worker)) == [first]
    assert await held_by(arena) == sorted([first, second])


async def test_a_cancel_behind_an_admission_signals_and_the_slot_stays(arena: Arena) -> None:
    worker, first, second = await known_key(arena)
    async with arena.holding() as one:
        (held,) = (await look(one, worker)).jobs
        cancelling = await arena.start(lambda seat: seat.driver.cancel(first, reason="stop"))
        await cancelling.is_blocked_by(one)
        await one.commit()
    assert await cancelling.result() is CancelVerdict.SIGNALLED
    assert await admit(arena, worker) == ()
    await arena.driver.free_slots((held.token,))
    assert ids(await admit(arena, worker)) == [second]


async def test_an_expire_passes_over_a_job_that_is_being_admitted(arena: Arena) -> None:
    await declare(arena)
    worker = await arena.register(lease_ms=3_600_000)
    await limited(arena)
    held = await admit_one(arena, worker)
    await arena.close_attempt(held.token, Completed())
    await arena.driver.free_slots((held.token,))
    (job_id,) = await limited(arena, max_queue_time=timedelta(seconds=1))
    await arena.advance(timedelta(seconds=1))
    async with arena.holding() as one:
        assert ids((await look(one, worker)).jobs) == [job_id]
        assert await arena.at_once(lambda seat: seat.driver.expire()) == ()
        await one.commit()
    assert (await arena.describe(job_id)).state is State.RUNNING


async def test_a_number_that_is_raised_opens_what_is_parked_by_the_old_one(arena: Arena) -> None:
    worker, held, waiter = await holder_and_waiter(arena)
    async with arena.holding() as one:
        assert (await look(one, worker)).jobs == ()  # it counted by the old number
        publishing = await arena.start(lambda seat: declare(seat, 2, version="2"))
        await publishing.is_blocked_by(one)
        await one.commit()
    await publishing.result()
    assert ids(await admit(arena, worker)) == [waiter]
    assert await held_by(arena) == [held.token.job_id, waiter]


async def test_a_worker_whose_lease_passed_is_admitted_nothing(arena: Arena) -> None:
    worker, first, _ = await known_key(arena)
    await arena.advance(LEASE)
    assert (await look(arena, worker)).jobs == ()  # type: ignore[arg-type] # a seat of its own would do the same
    assert (await arena.bucket(first), await held_by(arena)) == ("gate", [])


async def test_a_key_that_is_in_use_is_not_forgotten(arena: Arena) -> None:
    worker, first, second = await known_key(arena)
    await arena.driver.cancel(second, reason="stop")
    long_ago = "update outlast.limit_key set used_at = used_at - interval '2 days'"
    await arena.execute(long_ago)
    async with arena.holding() as one:
        assert ids((await look(one, worker)).jobs) == [first]
        assert await arena.at_once(lambda seat: seat.driver.sweep_slots()) == 0
        await one.commit()
    await arena.driver.sweep_slots()
    await arena.execute(long_ago)
    await arena.driver.sweep_slots()
    assert len(await arena.fetch("select from outlast.limit_key")) == 1


async def test_a_key_without_use_is_forgotten_after_a_day(arena: Arena) -> None:
    _, first, second = await known_key(arena)
    for job_id in (first, second):
        await arena.driver.cancel(job_id, reason="stop")
    await arena.driver.sweep_slots()
    assert len(await arena.fetch("select from outlast.limit_key")) == 1
    await arena.advance(timedelta(days=1, seconds=1))
    await arena.driver.sweep_slots()
    assert await arena.fetch("select from outlast.limit_key") == []
