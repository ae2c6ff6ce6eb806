"""What operators do to jobs in the gate, to their queues and to their limits."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import Action, AuditEntry, Target
from app.domain.bulk import BulkAction
from app.domain.edit import JobPatch, RunNowVerdict
from app.domain.errors import JobStateConflict, NotFound, QueueFull
from app.domain.explain import explain
from app.domain.job import JobId
from app.domain.outcome import Completed
from app.domain.queue import QueueChange
from app.domain.reason import REASON_RULES, Reason
from app.domain.state import State
from tests.conformance.gated import ALL, RATED, admit, admit_one, declare, held_by, ids, keyed, limited, reason_of
from tests.support.audit import an_entry, details_of, rows_of
from tests.support.bulk import a_bulk, done, store_of
from tests.support.drivers import NAME, QUEUE, DriverEnv, new_id

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
FACTS = {rule.code: rule.facts for rule in REASON_RULES}


async def order(env: DriverEnv) -> list[JobId]:
    """Give who comes out of the gate, where nothing holds anybody."""
    await declare(env, None, version="9")
    return ids(await admit(env, await env.register()))


async def why(env: DriverEnv, job_id: JobId) -> tuple[bool, list[Reason]]:
    situation = await env.driver.situation(job_id)
    assert situation is not None
    explained = explain(situation)
    for reason in explained.reasons:
        assert tuple(reason.facts) == FACTS[reason.code]
    assert explained.is_runnable is not any(reason.kind.blocks for reason in explained.reasons)
    return explained.is_runnable, [*explained.reasons]


# --- one job


async def test_a_gated_job_takes_its_place_by_its_new_priority(env: DriverEnv) -> None:
    first, second, third = await limited(env, 3)
    await env.driver.patch(third, JobPatch(priority=0))
    await env.driver.patch(first, JobPatch(priority=9))
    assert await order(env) == [third, second, first]


async def test_a_parked_job_with_a_new_priority_is_looked_at_again(env: DriverEnv) -> None:
    await declare(env)
    holder, first, second = await limited(env, 3)
    held = await admit_one(env, worker := await env.register())
    assert held.token.job_id == holder
    await env.driver.patch(second, JobPatch(priority=0))
    await env.close_attempt(held.token, Completed())
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, worker)) == [second]
    assert await reason_of(env, first) == "slot"


async def test_a_gated_job_is_put_off_and_made_ready_into_the_gate(env: DriverEnv) -> None:
    (job_id,) = await limited(env)
    await env.driver.patch(job_id, JobPatch(run_at=env.now() + HOUR))
    assert (await env.describe(job_id)).state is State.DELAYED
    assert await env.driver.run_now(job_id) is RunNowVerdict.MADE_READY
    assert await env.driver.run_now(job_id) is RunNowVerdict.ALREADY_READY
    await env.driver.patch(job_id, JobPatch(run_at=env.now() + HOUR, priority=1))
    await env.driver.patch(job_id, JobPatch(run_at=env.now() - SECOND))
    assert await env.claim(await env.register()) == ()
    assert await order(env) == [job_id]


async def test_a_gated_job_is_not_deleted(env: DriverEnv) -> None:
    (job_id,) = await limited(env)
    with pytest.raises(JobStateConflict):
        await env.driver.delete(job_id)
    assert await order(env) == [job_id]


# --- in bulk


@pytest.mark.parametrize("is_parked", [False, True], ids=["open", "parked"])
async def test_gated_jobs_are_cancelled_in_bulk(env: DriverEnv, is_parked: bool) -> None:
    await declare(env)
    jobs = await limited(env, 3)
    if is_parked:
        await admit_one(env, await env.register())
    view = await done(store_of(env), a_bulk(BulkAction.CANCEL, State.READY))
    assert view.done == 3 - is_parked
    assert [(await env.describe(job_id)).state for job_id in jobs[is_parked:]] == [State.CANCELLED] * view.done


async def test_gated_jobs_are_put_off_and_run_now_in_bulk(env: DriverEnv) -> None:
    jobs = await limited(env, 2)
    bulk = a_bulk(BulkAction.RESCHEDULE, State.READY, run_at=env.now() + HOUR)
    assert (await done(store_of(env), bulk)).done == 2
    assert [(await env.describe(job_id)).state for job_id in jobs] == [State.DELAYED] * 2
    assert (await done(store_of(env), a_bulk(BulkAction.RUN_NOW, State.DELAYED))).done == 2
    assert await env.claim(await env.register()) == ()
    assert await order(env) == jobs


async def test_gated_jobs_get_another_priority_in_bulk(env: DriverEnv) -> None:
    low = await limited(env, 2, priority=8)
    (high,) = await limited(env, priority=4)
    await done(store_of(env), a_bulk(BulkAction.SET_PRIORITY, State.READY, priority=4))
    assert await order(env) == [high, *low]


async def test_dead_limited_jobs_are_retried_into_the_gate_in_bulk(env: DriverEnv) -> None:
    jobs = await limited(env, 2)
    for job_id in jobs:
        await env.driver.cancel(job_id, reason="stop")
    assert (await done(store_of(env), a_bulk(BulkAction.RETRY, State.CANCELLED))).done == 2
    assert await env.claim(await env.register()) == ()
    assert await order(env) == jobs


# --- queues


async def test_a_paused_queue_keeps_the_gate_shut_until_its_pause_is_over(env: DriverEnv) -> None:
    await declare(env)
    (job_id,) = await limited(env)
    worker = await env.register(lease_ms=2 * 3_600_000)
    await env.driver.pause_queue(QUEUE, by="ops", until=env.now() + HOUR)
    assert await admit(env, worker) == ()
    is_runnable, reasons = await why(env, job_id)
    assert (is_runnable, reasons[0].code) == (False, "queue_paused")
    await env.advance(HOUR)
    assert ids(await admit(env, worker)) == [job_id]


async def test_limited_jobs_have_places_of_their_queue_like_any_other(env: DriverEnv) -> None:
    await declare(env, 10)
    await env.driver.set_queue(QUEUE, QueueChange(concurrency=2))
    first, second, third = await limited(env, 3)
    plain = await env.running()
    worker = await env.register()
    taken = await admit_one(env, worker)
    assert (taken.token.job_id, taken.is_limited, taken.has_slots) == (first, True, True)
    assert await admit(env, worker) == ()
    is_runnable, reasons = await why(env, second)
    assert (is_runnable, reasons[0].code) == (False, "queue_at_limit")
    await env.close_attempt(plain.token, Completed())
    assert ids(await admit(env, worker)) == [second]
    await env.enqueue()
    assert await env.claim(worker) == ()
    await env.driver.set_queue(QUEUE, QueueChange(concurrency=None))
    assert ids(await admit(env, worker)) == [third]


async def test_gated_jobs_count_in_their_queues_depth(env: DriverEnv) -> None:
    await env.driver.set_queue(QUEUE, QueueChange(max_depth=2))
    await limited(env, 2)
    assert (await env.driver.queue_facts(QUEUE)).depth == 2
    with pytest.raises(QueueFull):
        await limited(env)
    with pytest.raises(QueueFull):
        await env.enqueue()


# --- why not


async def test_why_a_job_waits_for_a_slot(env: DriverEnv) -> None:
    await declare(env, 1)
    holder, before, job_id = await limited(env, 3, limits=[keyed("acme")])
    assert (await why(env, job_id))[0]
    held = await admit_one(env, worker := await env.register(names=(NAME,)))
    is_runnable, reasons = await why(env, job_id)
    assert (is_runnable, reasons[0].code) == (False, "slot")
    assert reasons[0].facts == {
        "limit": "limit",
        "key": "acme",
        "n": 1,
        "held": 1,
        "holders": [str(holder)],
        "before": 1,
    }
    assert reasons[0].repair is not None
    await env.close_attempt(held.token, Completed())
    await env.driver.free_slots((held.token,))
    assert (await why(env, before))[0]
    assert ids(await admit(env, worker)) == [before]


async def test_why_a_job_waits_for_its_rate(env: DriverEnv) -> None:
    await declare(env, None, rate=(1, HOUR))
    _, job_id = await limited(env, 2, limits=[RATED])
    worker = await env.register(lease_ms=2 * 3_600_000)
    await admit_one(env, worker)
    began = env.now()
    is_runnable, reasons = await why(env, job_id)
    assert (is_runnable, reasons[0].code) == (False, "rate")
    assert reasons[0].facts == {"key": "", "n": 1, "per_ms": 3_600_000, "refills_at": began + HOUR, "before": 0}
    await env.advance(HOUR)
    assert (await why(env, job_id))[0]
    assert ids(await admit(env, worker)) == [job_id]


# --- the audit


def set_entry(**fields: Any) -> AuditEntry:
    return AuditEntry(
        id=new_id(), actor="alice", action=Action.LIMIT_SET, target_kind=Target.LIMIT, target=f"{NAME}/limit", **fields
    )


async def test_setting_a_limit_is_on_record_with_the_numbers(env: DriverEnv) -> None:
    await declare(env, 4)
    await env.driver.set_limit(NAME, "limit", 2, by="alice", audit=set_entry(reason="slow shop"))
    await env.driver.set_limit(NAME, "limit", 2, by="alice", audit=set_entry())
    await env.driver.set_limit(NAME, "limit", None, by="alice", audit=set_entry())
    rows = await rows_of(env.driver, f"{NAME}/limit")
    assert [(row.outcome, row.reason, details_of(row)) for row in rows] == [
        ("done", None, {"before": {"n": 2}, "after": {"n": 4}}),
        ("unchanged", None, {"before": {"n": 2}, "after": {"n": 2}}),
        ("done", "slow shop", {"before": {"n": 4}, "after": {"n": 2}}),
    ]
    with pytest.raises(NotFound):
        await env.driver.set_limit(NAME, "none", 2, by="alice", audit=set_entry())
    assert len(await rows_of(env.driver, f"{NAME}/limit")) == 3


async def test_taking_slots_back_is_on_record_with_what_was_taken(env: DriverEnv) -> None:
    await declare(env)
    (job_id,) = await limited(env, limits=[ALL], tenant="acme")
    held = await admit_one(env, await env.register())
    with pytest.raises(JobStateConflict):
        await env.driver.release_slots(job_id, audit=an_entry(Action.SLOT_RELEASE, job_id))
    await env.driver.cancel(job_id, reason="stop")
    await env.driver.release_slots(job_id, audit=an_entry(Action.SLOT_RELEASE, job_id))
    (row,) = await rows_of(env.driver, job_id)
    taken = [{"limit": "limit", "key": "", "worker_id": str(held.token.worker_id)}]
    assert (row.tenant, row.outcome, details_of(row)) == ("acme", "done", {"slots": taken})
    assert json.loads(row.details) == {"slots": taken}
    assert await held_by(env) == []
    with pytest.raises(NotFound):
        await env.driver.release_slots(job_id, audit=an_entry(Action.SLOT_RELEASE, job_id))
    assert len(await rows_of(env.driver, job_id)) == 1
