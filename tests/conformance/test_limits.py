from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import QueuesEmpty
from app.domain.limit import GateReason
from app.domain.outcome import Completed, Interrupted, Retried
from app.domain.state import State
from app.drivers.protocol import ClaimRequest
from tests.conformance.gated import (
    ALL,
    admit,
    admit_one,
    declare,
    held_by,
    ids,
    keyed,
    limited,
    looked,
    reason_of,
    request,
)
from tests.support.drivers import ERROR, LEASE, NAME, DriverEnv

MINUTE = timedelta(minutes=1)


async def test_no_claim_sees_a_limited_job(env: DriverEnv) -> None:
    await declare(env)
    (job_id,) = await limited(env)
    worker = await env.register()
    assert await env.claim(worker) == ()
    assert (await env.describe(job_id)).state is State.READY
    assert await reason_of(env, job_id) is None


async def test_a_job_is_admitted_whole_and_holds_its_slot(env: DriverEnv) -> None:
    await declare(env)
    (job_id,) = await limited(env, priority=3, payload='{"a":1}', tags=("x",), key="k")
    worker = await env.register()
    held = await admit_one(env, worker)
    assert (held.token.job_id, held.token.claim_no, held.token.worker_id) == (job_id, 1, worker)
    assert (held.name, held.priority, held.payload, held.tags, held.key) == (NAME, 3, '{"a":1}', ("x",), "k")
    assert held.has_slots
    assert (await env.describe(job_id)).state is State.RUNNING
    assert await held_by(env) == [job_id]


async def test_a_claim_is_of_no_limited_job(env: DriverEnv) -> None:
    assert not (await env.running()).has_slots


async def test_no_more_start_than_the_limit_says(env: DriverEnv) -> None:
    await declare(env, 2)
    jobs = await limited(env, 5)
    worker = await env.register()
    assert ids(await admit(env, worker)) == jobs[:2]
    assert await admit(env, worker) == ()
    assert [await reason_of(env, job_id) for job_id in jobs[2:]] == [GateReason.SLOT] * 3
    assert await held_by(env) == jobs[:2]


async def test_keys_are_counted_apart(env: DriverEnv) -> None:
    await declare(env)
    a, b = await limited(env, limits=[keyed("a")]), await limited(env, limits=[keyed("b")])
    c = await limited(env, limits=[keyed("a")])
    assert ids(await admit(env, await env.register())) == [*a, *b]
    assert await reason_of(env, c[0]) == GateReason.SLOT


async def test_job_types_are_counted_apart(env: DriverEnv) -> None:
    await declare(env)
    await declare(env, name="demo.other")
    (a,), (b,) = await limited(env), await limited(env, name="demo.other")
    assert ids(await admit(env, await env.register(), names=(NAME, "demo.other"))) == [a, b]


async def test_the_oldest_that_waits_for_a_key_is_next(env: DriverEnv) -> None:
    await declare(env)
    jobs = await limited(env, 3)
    worker = await env.register()
    for job_id in jobs:
        held = await admit_one(env, worker)
        assert held.token.job_id == job_id
        await env.close_attempt(held.token, Completed())
        assert await env.driver.free_slots((held.token,)) == 1


async def test_priority_comes_before_age_in_the_gate(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    late = await limited(env, priority=9)
    soon = await limited(env, priority=1)
    held = await admit_one(env, worker)
    assert [held.token.job_id] == soon
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, worker)) == late


async def test_a_job_behind_a_full_key_is_not_held_up(env: DriverEnv) -> None:
    await declare(env)
    await limited(env, 30, limits=[keyed("a")])
    (other,) = await limited(env, limits=[keyed("b")])
    worker = await env.register()
    first = await admit(env, worker, room=1)
    assert len(first) == 1
    found = [job for _ in range(40) for job in await admit(env, worker, room=1)]
    assert ids(found) == [other]


async def test_a_slot_outlives_the_settle_until_it_is_freed(env: DriverEnv) -> None:
    await declare(env)
    first, second = await limited(env, 2)
    worker = await env.register()
    held = await admit_one(env, worker)
    await env.close_attempt(held.token, Completed())
    assert await admit(env, worker) == ()
    assert await held_by(env) == [first]
    assert await env.driver.free_slots((held.token,)) == 1
    assert await env.driver.free_slots((held.token,)) == 0
    assert ids(await admit(env, worker)) == [second]


@pytest.mark.parametrize("outcome", [Interrupted(cause="drain"), Retried(error=ERROR, delay=timedelta())])
async def test_what_becomes_ready_again_waits_in_the_gate(env: DriverEnv, outcome: Interrupted | Retried) -> None:
    await declare(env)
    worker = await env.register()
    (job_id,) = await limited(env)
    held = await admit_one(env, worker)
    await env.close_attempt(held.token, outcome)
    await env.advance(timedelta(seconds=1))
    await env.driver.promote()
    assert await env.claim(worker) == ()
    assert await admit(env, worker) == ()  # its own slot is not given back yet
    await env.driver.free_slots((held.token,))
    again = await admit_one(env, worker)
    assert (again.token.job_id, again.token.claim_no) == (job_id, 2)


async def test_a_delayed_job_goes_into_the_gate_when_it_is_due(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    (job_id,) = await limited(env, delay=MINUTE)
    assert await admit(env, worker) == ()
    await env.advance(MINUTE)
    assert await env.driver.promote() == 1
    assert await env.claim(worker) == ()
    assert ids(await admit(env, await env.register())) == [job_id]


async def test_a_released_claim_goes_back_into_the_gate(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    (job_id,) = await limited(env)
    held = await admit_one(env, worker)
    assert await env.driver.release((held.token,), cause="drain") == 1
    assert await env.claim(worker) == ()
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, worker)) == [job_id]


async def test_a_token_of_another_claim_frees_nothing(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    await limited(env)
    held = await admit_one(env, worker)
    stale = held.token._replace(fence=held.token.fence + 1)
    strange = held.token._replace(worker_id=await env.register())
    assert await env.driver.free_slots((stale, strange)) == 0
    assert len(await held_by(env)) == 1


async def test_a_cancelled_jobs_slot_is_held_until_its_body_has_ended(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    first, second = await limited(env, 2)
    held = await admit_one(env, worker)
    await env.driver.cancel(first, reason="stop")
    assert await admit(env, worker) == ()
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, worker)) == [second]


async def test_a_gone_workers_slots_are_swept(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    first, second = await limited(env, 2)
    await admit_one(env, worker)
    assert not (await env.driver.due()).must_free
    assert await env.driver.sweep_slots() == 0
    await env.vanish()
    await env.driver.reap()
    assert (await env.driver.due()).must_free
    assert await env.driver.sweep_slots() == 1
    assert not (await env.driver.due()).must_free
    other = await env.register()
    assert ids(await admit(env, other)) == [first]  # before new work, as all work that was begun
    assert await reason_of(env, second) == GateReason.SLOT


async def test_a_lapsed_lease_admits_nothing(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    await limited(env)
    await env.advance(LEASE)
    assert await admit(env, worker) == ()


async def test_what_a_worker_does_not_know_of_is_returned(env: DriverEnv) -> None:
    await declare(env, 3)
    worker = await env.register()
    await limited(env, 3)
    known, *_ = await admit(env, worker, room=2)
    await env.advance(timedelta(seconds=1))
    before = env.now()
    late = await admit_one(env, worker)
    assert await env.driver.return_slots(worker, [known.token], before=before) == 1
    assert await held_by(env) == ids([known, late])


async def test_the_gate_keeps_to_a_claims_rules(env: DriverEnv) -> None:
    await declare(env, 5)
    worker = await env.register()
    (job_id,) = await limited(env)
    assert await admit(env, worker, names=("demo.other",)) == ()
    assert await admit(env, worker, queues=("other",)) == ()
    await env.driver.pause_queue("default", by="anna")
    assert await admit(env, worker) == ()
    await env.driver.resume_queue("default")
    assert ids(await admit(env, worker)) == [job_id]
    with pytest.raises(QueuesEmpty):
        await env.driver.admit(ClaimRequest(worker_id=worker, shares=(), names=frozenset({NAME}), room=1))


async def test_a_job_that_must_run_alone_waits_in_the_gate_too(env: DriverEnv) -> None:
    await declare(env, 5)
    worker = await env.register()
    (job_id,) = await limited(env, max_crashes=1)
    assert await admit(env, worker, alone_ok=False) == ()
    assert ids(await admit(env, worker)) == [job_id]


async def test_room_bounds_what_is_admitted_and_the_rest_stays_open(env: DriverEnv) -> None:
    await declare(env, 5)
    worker = await env.register()
    jobs = await limited(env, 4)
    answer = await looked(env, worker, room=3)
    assert (ids(answer.jobs), answer.is_full) == (jobs[:3], True)
    assert await reason_of(env, jobs[3]) is None
    last = await looked(env, worker, room=3)
    assert (ids(last.jobs), last.is_full) == (jobs[3:], False)


async def test_a_limited_job_without_a_published_limit_starts(env: DriverEnv) -> None:
    (job_id,) = await limited(env)
    assert ids(await admit(env, await env.register())) == [job_id]


async def test_the_gate_is_told_of_as_long_as_it_is_not_empty(env: DriverEnv) -> None:
    await declare(env)
    assert not (await env.driver.due()).is_gated
    await limited(env)
    assert (await env.driver.due()).is_gated
    await admit_one(env, await env.register())
    assert not (await env.driver.due()).is_gated


async def test_a_batch_may_hold_limited_jobs_and_others(env: DriverEnv) -> None:
    from tests.support.drivers import new_job  # noqa: PLC0415

    await declare(env, 5)
    plain, under = new_job(), new_job(limits=(ALL,))
    await env.driver.enqueue_many([plain, under])
    worker = await env.register()
    assert ids(await env.claim(worker)) == [plain.id]
    assert ids((await env.driver.admit(request(worker))).jobs) == [under.id]
