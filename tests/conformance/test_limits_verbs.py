"""Every verb that moves or shows a job knows those in the gate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import JobNotFound, JobStateConflict, NotFound
from app.domain.job import JobId
from app.domain.limit import GateReason, JobLimits, SlotQuery
from app.domain.outbox import Pass
from app.domain.outcome import CancelVerdict, Completed, DeadLettered, Held, Interrupted
from app.domain.state import DeadReason, State
from app.domain.step import RetryMode
from app.drivers.protocol import PurgeQuery
from app.drivers.reading import ListQuery
from app.outbox.passes import Passes
from tests.conformance.gated import ALL, RATED, admit, admit_one, declare, held_by, ids, keyed, limited, reason_of
from tests.conformance.runs import a_call, a_child, a_sleep, enlist, suspend
from tests.conformance.versions import diverged, publish
from tests.support.drivers import ERROR, NAME, DriverEnv, new_id
from tests.support.outbox import BATCH, Outbox

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
LONG = 24 * 3_600_000


async def gated(env: DriverEnv, **fields: Any) -> JobId:
    """Give a job that is parked behind a full limit of one."""
    await declare(env)
    holder, waits = await limited(env, 2, **fields)
    worker = await env.register(lease_ms=LONG)
    assert ids(await admit(env, worker)) == [holder]
    assert await reason_of(env, waits) == GateReason.SLOT
    return waits


async def test_a_gated_job_is_cancelled_before_its_start(env: DriverEnv) -> None:
    job_id = await gated(env, key=None)
    assert await env.driver.cancel(job_id, reason="stop") is CancelVerdict.CANCELLED_BEFORE_START
    assert (await env.describe(job_id)).state is State.CANCELLED
    assert await env.driver.cancel(job_id, reason="stop") is CancelVerdict.ALREADY_FINISHED


async def test_a_gated_job_expires_and_meets_its_deadline(env: DriverEnv) -> None:
    await gated(env)
    (late,) = await limited(env, max_queue_time=SECOND)
    (dead,) = await limited(env, deadline=SECOND)
    await env.advance(SECOND)
    assert (await env.driver.due()).must_expire
    reasons = {one.job_id: one.reason for one in await env.driver.expire()}
    assert reasons == {late: DeadReason.EXPIRED, dead: DeadReason.DEADLINE}


async def test_a_retried_job_goes_into_the_gate(env: DriverEnv) -> None:
    job_id = await gated(env)
    await env.driver.cancel(job_id, reason="stop")
    await env.driver.retry(job_id)
    assert await env.claim(await env.register()) == ()
    assert (await env.describe(job_id)).state is State.READY
    assert job_id in [one.id for one in (await env.driver.list(ListQuery(states=frozenset({State.READY})))).items]


@pytest.mark.parametrize("mode", list(RetryMode))
async def test_a_held_jobs_way_back_is_through_the_gate(env: DriverEnv, mode: RetryMode) -> None:
    await declare(env, 5)
    worker = await env.register()
    (job_id,) = await limited(env)
    held = await admit_one(env, worker)
    await env.close_attempt(held.token, Held(reason="odd", error=ERROR))
    if mode is RetryMode.FRESH:
        await env.driver.retry(job_id, mode=mode)
    else:
        await env.driver.release_held(job_id)
    assert await env.claim(worker) == ()
    assert ids(await admit(env, worker)) == [job_id]


async def test_a_fork_of_a_limited_job_is_limited(env: DriverEnv) -> None:
    await declare(env, 1)
    worker = await env.register()
    (job_id,) = await limited(env)
    held = await admit_one(env, worker)
    await env.close_attempt(held.token, Completed())
    made = await env.driver.fork(job_id, new_id=new_id())
    assert await env.claim(worker) == ()
    assert await admit(env, worker) == ()
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, worker)) == [made.id]


async def test_a_suspended_run_holds_no_slot_and_wakes_into_the_gate(env: DriverEnv) -> None:
    await declare(env, 1)
    worker = await enlist(env)
    first, second = await limited(env, 2)
    held = await admit_one(env, worker)
    assert await suspend(env, held, a_sleep(delay=HOUR)) is State.SUSPENDED
    await env.driver.free_slots((held.token,))
    other = await admit_one(env, worker)
    assert other.token.job_id == second
    await env.advance(HOUR)
    assert await env.driver.wake() == 1
    assert await env.claim(worker) == ()
    assert await admit(env, worker) == ()
    await env.driver.free_slots((other.token,))
    assert ids(await admit(env, worker)) == [first]


async def test_a_limited_child_that_ends_wakes_its_limited_parent_into_the_gate(env: DriverEnv) -> None:
    await declare(env, 1)
    worker = await enlist(env)
    (job_id,) = await limited(env)
    held = await admit_one(env, worker)
    child = a_child(held, limits=(ALL,), name=NAME)
    assert await suspend(env, held, a_call(child)) is State.SUSPENDED
    await env.driver.free_slots((held.token,))
    called = await admit_one(env, worker)
    assert called.token.job_id == child.id
    await env.close_attempt(called.token, Completed())
    await env.driver.sweep_waits()
    assert (await env.describe(job_id)).state is State.READY
    assert await env.claim(worker) == ()
    await env.driver.free_slots((called.token,))
    assert ids(await admit(env, worker)) == [job_id]


async def test_a_handed_back_job_waits_in_the_gate_for_its_version_alone(env: DriverEnv) -> None:
    old, new = await enlist(env, code_version="old"), await enlist(env, code_version="new")
    await publish(env, "old")
    await declare(env, 1, version="new")
    (job_id,) = await limited(env)
    held = await admit_one(env, new)
    await env.close_attempt(held.token, diverged())
    await env.driver.free_slots((held.token,))
    assert await admit(env, new) == ()
    assert not (await env.driver.due()).must_release
    assert ids(await admit(env, old)) == [job_id]


async def test_a_handed_back_job_is_held_when_its_version_left_the_gate_to_it(env: DriverEnv) -> None:
    old, new = await enlist(env, code_version="old"), await enlist(env, code_version="new")
    await publish(env, "old")
    await declare(env, 1, version="new")
    (job_id,) = await limited(env)
    held = await admit_one(env, new)
    await env.close_attempt(held.token, diverged())
    await env.driver.close_worker(old)
    assert (await env.driver.due()).must_release
    assert await env.driver.release_due() == 1
    assert (await env.describe(job_id)).state is State.HELD
    assert not (await env.driver.due()).must_release
    await env.driver.release_held(job_id)
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, new)) == [job_id]


async def test_gated_jobs_are_counted_and_listed_among_the_ready(env: DriverEnv) -> None:
    job_id = await gated(env)
    await env.advance(HOUR)
    plain = await env.enqueue()
    (queue,) = await env.driver.queues()
    assert (queue.depth[State.READY], queue.depth[State.RUNNING]) == (2, 1)
    assert queue.oldest_ready_seconds == HOUR.total_seconds()
    assert (await env.driver.stats()).by_state[State.READY] == 2
    page = await env.driver.list(ListQuery(states=frozenset({State.READY})))
    assert [(one.id, one.state_reason) for one in page.items] == [(plain, None), (job_id, "slot")]


async def test_a_limited_job_is_purged_as_any_other(env: DriverEnv) -> None:
    job_id = await gated(env)
    await env.driver.cancel(job_id, reason="stop")
    await env.advance(HOUR)
    assert await env.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=SECOND)) == 1
    assert await env.driver.describe(job_id) is None


async def test_a_key_of_a_gated_job_is_freed_when_it_ends(env: DriverEnv) -> None:
    await declare(env)
    (job_id,) = await limited(env, key="k")
    assert (await env.enqueue_again(key="k", limits=(ALL,))).id == job_id
    await env.driver.cancel(job_id, reason="stop")
    assert not (await env.enqueue_again(key="k", limits=(ALL,))).deduped


async def test_a_limited_jobs_interrupted_attempt_comes_before_new_work(env: DriverEnv) -> None:
    await declare(env, 1)
    worker = await env.register()
    first, second = await limited(env, 2)
    held = await admit_one(env, worker)
    await env.close_attempt(held.token, Interrupted(cause="drain"))
    await env.driver.free_slots((held.token,))
    assert (await admit_one(env, worker)).token.job_id == first
    assert (await env.describe(second)).state is State.READY


async def test_a_dead_limited_job_is_retried_into_the_gate(env: DriverEnv) -> None:
    await declare(env, 1)
    worker = await env.register()
    (job_id,) = await limited(env)
    held = await admit_one(env, worker)
    await env.close_attempt(held.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    await env.driver.retry(job_id)
    assert await admit(env, worker) == ()
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, worker)) == [job_id]


async def test_a_staged_limited_job_is_published_into_the_gate(outbox: Outbox, passes: Passes) -> None:
    env = outbox.env
    await declare(env, 1)
    staged = await outbox.staged(limits=(keyed('it\'s, "{odd}" \\'),))
    plain = await outbox.staged()
    assert await passes.once(BATCH) == Pass(published=2)
    worker = await env.register()
    assert ids(await env.claim(worker)) == [plain]
    assert ids(await admit(env, worker)) == [staged]
    (slot,) = await env.driver.slots(SlotQuery())
    assert slot.key == 'it\'s, "{odd}" \\'


# --- what operators see and do


async def test_a_slot_is_shown_with_its_holder(env: DriverEnv) -> None:
    await declare(env, 2)
    worker = await env.register()
    (job_id,) = await limited(env, limits=[keyed("a")], tenant="acme")
    held = await admit_one(env, worker)
    (slot,) = await env.driver.slots(SlotQuery())
    assert (slot.name, slot.limit, slot.key, slot.job_id) == (NAME, "limit", "a", job_id)
    assert (slot.claim_no, slot.worker_id, slot.taken_at, slot.is_open) == (1, worker, env.now(), True)
    assert slot.tenant == "acme"
    await env.close_attempt(held.token, Completed())
    (slot,) = await env.driver.slots(SlotQuery())
    assert not slot.is_open


async def test_held_slots_are_counted_also_of_a_job_that_is_gone(env: DriverEnv) -> None:
    await declare(env)
    assert (await env.driver.stats()).slots_held == 0
    await limited(env)
    held = await admit_one(env, await env.register())
    await env.close_attempt(held.token, Completed())
    await env.driver.delete(held.token.job_id)
    counted = await env.driver.stats()
    assert (counted.slots_held, counted.queues) == (1, ())


async def test_slots_are_filtered_and_paged(env: DriverEnv) -> None:
    await declare(env, 5)
    worker = await env.register(lease_ms=LONG)
    jobs = []
    for number in range(4):
        jobs += await limited(env, tenant="a" if number % 2 else "b")
        await admit_one(env, worker)
        await env.advance(SECOND)
    first = await env.driver.slots(SlotQuery(limit=3))
    rest = await env.driver.slots(SlotQuery(limit=3, after=first[-1].job_id))
    assert [slot.job_id for slot in (*first, *rest)] == jobs
    assert await held_by(env, tenant="a") == jobs[1::2]
    assert await held_by(env, name="demo.other") == []


async def test_an_operator_takes_back_what_a_closed_attempt_holds(env: DriverEnv) -> None:
    await declare(env)
    worker = await env.register()
    first, second = await limited(env, 2)
    await admit_one(env, worker)
    with pytest.raises(JobStateConflict):
        await env.driver.release_slots(first)
    await env.driver.cancel(first, reason="stop")
    (taken,) = await env.driver.release_slots(first)
    assert (taken.job_id, taken.is_open) == (first, False)
    with pytest.raises(NotFound):
        await env.driver.release_slots(first)
    with pytest.raises(JobNotFound):
        await env.driver.release_slots(first, tenant="other")
    with pytest.raises(JobNotFound):
        await env.driver.release_slots(new_id())
    assert ids(await admit(env, worker)) == [second]


async def test_an_operators_number_stands_in_the_declared_ones_place(env: DriverEnv) -> None:
    await declare(env, 1)
    worker = await env.register()
    jobs = await limited(env, 5)
    assert len(await admit(env, worker)) == 1
    stored = await env.driver.set_limit(NAME, "limit", 3, by="anna")
    assert (stored.n, stored.declared, stored.set_by, stored.held, stored.waiting) == (3, 1, "anna", 1, 4)
    held = await admit(env, worker)
    assert ids(held) == jobs[1:3]
    await declare(env, 2, version="2")
    (stored,) = await env.driver.stored_limits(NAME)
    assert (stored.n, stored.declared) == (3, 2)
    stored = await env.driver.set_limit(NAME, "limit", None, by="anna")
    assert (stored.n, stored.set_by, stored.held) == (2, None, 3)
    await env.driver.free_slots((held[0].token,))
    assert await admit(env, worker) == ()


async def test_an_operators_number_goes_with_the_limit(env: DriverEnv) -> None:
    await declare(env, 1)
    await env.driver.set_limit(NAME, "limit", 1, by="anna")
    jobs = await limited(env, 3)
    worker = await env.register()
    await declare(env, None)
    assert [one.n for one in await env.driver.stored_limits(NAME)] == [None]
    assert ids(await admit(env, worker)) == jobs
    await declare(env, 2)
    assert [one.n for one in await env.driver.stored_limits(NAME)] == [1]


async def test_a_limit_nobody_declared_cannot_be_set(env: DriverEnv) -> None:
    await declare(env, 1)
    with pytest.raises(NotFound):
        await env.driver.set_limit(NAME, "other", 3, by="anna")
    assert await env.driver.stored_limits("demo.other") == ()
    assert [one.limit for one in await env.driver.stored_limits()] == ["limit"]


async def test_a_job_is_told_what_stands_in_its_way(env: DriverEnv) -> None:
    await declare(env, 1, rate=(1, HOUR))
    worker = await env.register(lease_ms=LONG)
    holder, waits, behind = await limited(env, 3, limits=[ALL, RATED])
    await admit(env, worker)
    facts = await env.driver.limits_of(behind)
    assert facts is not None
    assert (facts.is_gated, facts.waits_for) == (True, GateReason.SLOT)
    slots, rate = facts.limits
    assert (slots.limit, slots.key, slots.n, slots.per, slots.held) == ("limit", "", 1, None, 1)
    assert (slots.holders, slots.ahead, slots.is_free) == ((holder,), 1, False)
    assert (rate.limit, rate.n, rate.per, rate.next_at, rate.is_free) == ("rate", 1, HOUR, env.now() + HOUR, False)
    assert (await env.driver.limits_of(waits)).limits[0].ahead == 0  # type: ignore[union-attr] # it is there
    running = await env.driver.limits_of(holder)
    assert running is not None
    assert (running.is_gated, running.waits_for, running.limits[0].ahead) == (False, None, None)


async def test_a_job_without_limits_has_none_to_wait_for(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme")
    assert await env.driver.limits_of(job_id) == JobLimits(is_gated=False, waits_for=None, limits=())
    assert await env.driver.limits_of(job_id, tenant="other") is None
    assert await env.driver.limits_of(new_id()) is None
