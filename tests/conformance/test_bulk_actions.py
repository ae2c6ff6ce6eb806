"""What each action of a bulk operation does to a job: the same as the action on one, and it says so in the audit."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from app.domain.audit import Action, AuditEntry, AuditQuery, AuditView, Target
from app.domain.bulk import BulkAction, BulkVerdict
from app.domain.job import JobId
from app.domain.outcome import Completed, Held, SettleAnswer
from app.domain.state import State
from tests.conformance.runs import (
    CHILD,
    HOUR,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    an_event,
    called,
    claim_child,
    emit,
    enlist,
    record,
    settle,
    state_of,
    suspend,
    suspended,
    waits,
)
from tests.support.bulk import a_bulk, dead, done, store_of
from tests.support.drivers import DriverEnv

DELETE, RUN_NOW = BulkAction.DELETE, BulkAction.RUN_NOW
RESCHEDULE, SET_PRIORITY = BulkAction.RESCHEDULE, BulkAction.SET_PRIORITY


async def held(env: DriverEnv, **fields: Any) -> JobId:
    claimed = await env.running(**fields)
    await env.close_attempt(claimed.token, Held(reason="does not fit"))
    return claimed.token.job_id


async def claimed_in_order(env: DriverEnv) -> list[JobId]:
    return [job.token.job_id for job in await env.claim(await enlist(env))]


async def rows(env: DriverEnv, **where: Any) -> tuple[AuditView, ...]:
    return (await env.driver.audit(AuditQuery(**where))).items


# --- cancel of runs


async def test_a_cancelled_run_leaves_no_wait_behind(env: DriverEnv) -> None:
    run = await suspended(env, an_event(), a_sleep(number=1))
    view = await done(store_of(env), a_bulk(BulkAction.CANCEL, State.SUSPENDED))
    assert (view.done, await state_of(env, run.token.job_id)) == (1, State.CANCELLED)
    assert [item.detail for item in await store_of(env).items(view.id)] == ["cancelled_while_waiting"]
    assert await waits(env, run.token.job_id) == []
    assert (await emit(env)).matched == 0


async def test_a_run_that_waits_and_is_ready_again_leaves_none_either(env: DriverEnv) -> None:
    run = await suspended(env, an_event(), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    assert await state_of(env, run.token.job_id) is State.READY
    await done(store_of(env), a_bulk(BulkAction.CANCEL))
    assert await state_of(env, run.token.job_id) is State.CANCELLED
    assert (await emit(env)).matched == 0


async def test_a_job_that_calls_others_is_cancelled_with_them(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    running, waiting = a_child(child), a_child(child, delay=HOUR)
    await suspend(env, child, a_call(running, "a", 0), a_call(waiting, "b", 1))
    grandchild = await claim_child(env, worker, running.id)
    view = await done(store_of(env), a_bulk(BulkAction.CANCEL, ids=[parent.token.job_id], reason="stop"))
    (item,) = await store_of(env).items(view.id)
    assert (item.verdict, item.detail) == (BulkVerdict.DONE, "cancelled_while_waiting")
    views = [await env.describe(job_id) for job_id in (parent.token.job_id, child.token.job_id, running.id, waiting.id)]
    assert [each.state for each in views] == [State.CANCELLED] * 4
    assert [each.state_reason for each in views] == ["stop", *["parent cancelled"] * 3]
    assert await env.settle(grandchild.token, Completed()) is SettleAnswer.CANCELLED


async def test_parents_and_children_in_one_operation_all_come_to_an_end(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    view = await done(store_of(env), a_bulk(BulkAction.CANCEL))
    assert (view.selected, view.done + view.changed) == (2, 2)
    assert [await state_of(env, job.token.job_id) for job in (parent, child)] == [State.CANCELLED] * 2


async def test_a_cancelled_child_wakes_its_parent(env: DriverEnv) -> None:
    parent, child = await called(env)
    await done(store_of(env), a_bulk(BulkAction.CANCEL, name=CHILD))
    assert await state_of(env, child.token.job_id) is State.CANCELLED
    assert await state_of(env, parent.token.job_id) is State.READY


# --- release


async def test_held_jobs_are_released(env: DriverEnv) -> None:
    job_id = await held(env)
    later = await env.enqueue()
    view = await done(store_of(env), a_bulk(BulkAction.RELEASE))
    assert (view.done, await claimed_in_order(env)) == (1, [job_id, later])


# --- delete


async def test_deleted_jobs_are_gone_and_held_ones_free_their_keys(env: DriverEnv) -> None:
    store = store_of(env)
    gone = [await dead(env), await held(env, key="h")]
    finished = await env.running(key="f", dedupe_for=HOUR)
    await env.close_attempt(finished.token, Completed())
    live = await env.enqueue()
    view = await done(store, a_bulk(DELETE))
    assert (view.selected, view.done) == (3, 3)
    for job_id in (*gone, finished.token.job_id):
        assert await env.driver.describe(job_id) is None
        assert await env.ledger(job_id) == ()
    assert await state_of(env, live) is State.READY
    assert not (await env.enqueue_again(key="h")).deduped
    assert (await env.enqueue_again(key="f")).deduped


async def test_a_held_job_is_deleted_with_its_run_and_its_children_are_cancelled(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent = await env.running(worker)
    child = a_child(parent, delay=HOUR)
    await suspend(env, parent, a_call(child), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    again = await env.claim_one(worker)
    await record(env, again.token, "load")
    await settle(env, again, Held(reason="does not fit"), has_waits=True)
    view = await done(store_of(env), a_bulk(DELETE, State.HELD))
    assert (view.done, view.failed) == (1, 0)
    assert await env.driver.describe(parent.token.job_id) is None
    assert await state_of(env, child.id) is State.CANCELLED


async def test_who_waits_for_a_deleted_job_is_told(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await settle(env, child, Held(reason="does not fit"))
    assert await state_of(env, parent.token.job_id) is State.SUSPENDED
    view = await done(store_of(env), a_bulk(DELETE, State.HELD))
    assert view.done == 1
    assert await env.driver.describe(child.token.job_id) is None
    assert await state_of(env, parent.token.job_id) is State.READY


async def test_who_was_not_told_of_a_child_that_is_done_is_given_its_result(env: DriverEnv) -> None:
    parent, child = await called(env)
    await settle(env, child, Completed(result="7"), is_child=False)
    view = await done(store_of(env), a_bulk(DELETE, State.DONE, name=CHILD))
    assert view.done == 1
    history = await env.driver.history(parent.token.job_id, parent.run_id)
    assert [step.value for step in history.steps] == ["7"]
    assert await state_of(env, parent.token.job_id) is State.READY


# --- run now, reschedule


async def test_delayed_jobs_run_now_in_the_order_they_came(env: DriverEnv) -> None:
    first, second = await env.enqueue(delay=2 * HOUR), await env.enqueue(delay=HOUR)
    view = await done(store_of(env), a_bulk(RUN_NOW))
    assert (view.selected, view.done) == (2, 2)
    assert await claimed_in_order(env) == [first, second]
    assert (await env.describe(first)).run_at == env.now()


async def test_jobs_are_put_off(env: DriverEnv) -> None:
    ready, delayed = await env.enqueue(), await env.enqueue(delay=HOUR)
    at = env.now() + 3 * HOUR
    assert (await done(store_of(env), a_bulk(RESCHEDULE, run_at=at))).done == 2
    assert [(await env.describe(job_id)).run_at for job_id in (ready, delayed)] == [at, at]
    assert [await state_of(env, job_id) for job_id in (ready, delayed)] == [State.DELAYED, State.DELAYED]
    await env.advance(3 * HOUR)
    assert await env.driver.promote() == 2


async def test_jobs_whose_new_time_has_passed_are_ready(env: DriverEnv) -> None:
    ready, delayed = await env.enqueue(), await env.enqueue(delay=HOUR)
    at = env.now() - SECOND
    assert (await done(store_of(env), a_bulk(RESCHEDULE, run_at=at))).done == 2
    assert [(await env.describe(job_id)).run_at for job_id in (ready, delayed)] == [at, at]
    assert await claimed_in_order(env) == [ready, delayed]


# --- priority


async def test_a_new_priority_counts_wherever_the_job_waits(env: DriverEnv) -> None:
    asleep = await suspended(env, a_sleep(delay=SECOND))
    stopped = await held(env)
    delayed = await env.enqueue(delay=SECOND)
    first, second = await env.enqueue(), await env.enqueue()
    urgent = await env.enqueue(queue="mail")
    bulk = a_bulk(SET_PRIORITY, priority=1)
    assert (await done(store_of(env), bulk)).done == 6
    normal = await env.enqueue(priority=3)
    await env.advance(SECOND)
    await env.driver.promote()
    await env.driver.wake()
    await env.driver.release_held(stopped)
    order = await claimed_in_order(env)
    assert set(order[:2]) == {asleep.token.job_id, stopped}
    assert order[2:] == [first, second, delayed, normal]
    shown = [await env.describe(job_id) for job_id in (*order[:5], urgent)]
    assert [view.priority for view in shown] == [1] * 6


async def test_a_job_of_that_priority_already_keeps_its_place(env: DriverEnv) -> None:
    first = await env.enqueue(priority=1)
    second = await env.enqueue(priority=5)
    third = await env.enqueue(priority=1)
    assert (await done(store_of(env), a_bulk(SET_PRIORITY, ids=[first, second], priority=1))).done == 2
    assert await claimed_in_order(env) == [first, third, second]


# --- the audit


async def test_each_job_and_the_operation_have_rows_in_the_audit(env: DriverEnv) -> None:
    store = store_of(env)
    job_id, other = await env.enqueue(tenant="berlin"), await env.enqueue(tenant="berlin")
    bulk = a_bulk(BulkAction.CANCEL, tenant="berlin", reason="moved")
    entry = AuditEntry(
        id=uuid4(), actor="ada", action=Action.BULK_MAKE, target_kind=Target.BULK, target=str(bulk.id), tenant="berlin"
    )
    made = await store.make(bulk, audit=entry)
    await store.make(bulk, audit=entry)
    await env.driver.cancel(other, reason="sooner")
    await done(store, bulk)

    (of_bulk,) = await rows(env, target=str(bulk.id))
    assert (of_bulk.action, of_bulk.tenant, json.loads(of_bulk.details)) == ("bulk.make", "berlin", {"selected": 2})
    (row,) = await rows(env, action="job.cancel")
    assert (row.actor, row.tenant, row.target, row.reason) == ("ada", "berlin", str(job_id), "moved")
    assert (row.outcome, row.at) == ("cancelled_before_start", env.now())
    assert json.loads(row.details) == {
        "bulk_id": str(made.id),
        "name": "demo.job",
        "queue": "default",
        "state": "ready",
    }


async def test_deleted_and_taken_along_jobs_have_theirs_too(env: DriverEnv) -> None:
    job_id = await dead(env, tenant="berlin")
    await done(store_of(env), a_bulk(DELETE))
    parent, child = await called(env)
    await done(store_of(env), a_bulk(BulkAction.CANCEL, ids=[parent.token.job_id]))
    (row,) = await rows(env, action="job.delete")
    assert (row.target, row.tenant, row.outcome) == (str(job_id), "berlin", "done")
    (row,) = await rows(env, action="job.cancel")
    assert (row.target, row.outcome) == (str(parent.token.job_id), "cancelled_while_waiting")
    assert await state_of(env, child.token.job_id) is State.CANCELLED


async def test_an_abort_says_how_far_it_was(env: DriverEnv) -> None:
    store = store_of(env)
    await env.enqueue()
    await env.enqueue()
    made = await store.make(a_bulk(BulkAction.CANCEL))
    await store.step(batch=1)
    for number in range(2):
        entry = AuditEntry(
            id=uuid4(), actor="bob", action=Action.BULK_ABORT, target_kind=Target.BULK, target=str(made.id)
        )
        await store.abort(made.id, by="bob", audit=entry)
        newest = (await rows(env, action="bulk.abort"))[0]
        assert newest.outcome == ("done", "unchanged")[number]
        assert json.loads(newest.details) == {"selected": 2, "done": 1, "changed": 0, "failed": 0}
