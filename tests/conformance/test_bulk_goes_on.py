"""Bulk operations in a store: how they go on, are stopped, shown and deleted. Once per driver."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.bulk import BULK_KEPT, BulkAction, BulkState, BulkVerdict, JobFilter
from app.domain.errors import NotFound
from app.domain.job import JobId
from app.domain.state import State
from tests.support.bulk import a_bulk, dead, done, store_of, worked_off
from tests.support.drivers import NAME, DriverEnv

CANCEL, RETRY, RELEASE = BulkAction.CANCEL, BulkAction.RETRY, BulkAction.RELEASE
HOUR = timedelta(hours=1)
OTHER = "other.job"


async def states(env: DriverEnv, *ids: JobId) -> list[State]:
    return [(await env.describe(job_id)).state for job_id in ids]


async def verdicts(env: DriverEnv, bulk_id: object) -> list[tuple[BulkVerdict | None, str | None, str | None]]:
    items = await store_of(env).items(bulk_id)  # type: ignore[arg-type] # an operation's id
    return [(item.verdict, item.code, item.detail) for item in items]


# --- how it goes on


async def test_it_goes_on_batch_by_batch_and_counts_what_it_did(env: DriverEnv) -> None:
    store = store_of(env)
    for _ in range(5):
        await env.enqueue()
    made = await store.make(a_bulk(CANCEL))
    steps = await worked_off(store, made, batch=2)
    assert [step.done for step in steps] == [2, 2, 1]
    assert [step.view.left for step in steps] == [3, 1, 0]
    assert [step.view.state for step in steps] == [BulkState.RUNNING, BulkState.RUNNING, BulkState.DONE]
    assert steps[-1].view.ended_at == env.now()


async def test_operations_take_turns(env: DriverEnv) -> None:
    store = store_of(env)
    for _ in range(3):
        await env.enqueue()
        await env.enqueue(OTHER)
    one, other = await store.make(a_bulk(CANCEL, name=NAME)), await store.make(a_bulk(CANCEL, name=OTHER))
    turns, last = [], None
    while (step := await store.step(after=last, batch=1)) is not None:
        last = step.view.id
        turns.append(last)
    assert turns == [one.id, other.id] * 3


async def test_an_aborted_operation_does_nothing_more_and_keeps_what_it_did(env: DriverEnv) -> None:
    store = store_of(env)
    jobs = [await env.enqueue() for _ in range(3)]
    made = await store.make(a_bulk(CANCEL))
    await store.step(batch=1)
    aborted = await store.abort(made.id, by="bob")
    assert (aborted.state, aborted.done, aborted.left, aborted.ended_by) == (BulkState.ABORTED, 1, 2, "bob")
    assert await store.step() is None
    assert await store.abort(made.id, by="eve") == aborted
    assert await states(env, *jobs) == [State.CANCELLED, State.READY, State.READY]


async def test_an_operation_that_has_ended_cannot_be_aborted_any_more(env: DriverEnv) -> None:
    store = store_of(env)
    await env.enqueue()
    view = await done(store, a_bulk(CANCEL))
    assert await store.abort(view.id, by="bob") == view


# --- what is shown and kept


async def test_operations_are_listed_newest_first_and_by_tenant(env: DriverEnv) -> None:
    store = store_of(env)
    first = await store.make(a_bulk(CANCEL, tenant="berlin"))
    second = await store.make(a_bulk(CANCEL, tenant="paris"))
    every = await store.make(a_bulk(CANCEL))
    assert await store.operations(limit=10) == (every, second, first)
    assert await store.operations(limit=1) == (every,)
    assert await store.operations(limit=10, before=every.id) == (second, first)
    assert await store.operations(limit=10, tenant="berlin") == (first,)
    assert await store.find(first.id, tenant="paris") is None
    assert await store.find(first.id, tenant="berlin") == first
    with pytest.raises(NotFound):
        await store.abort(first.id, by="bob", tenant="paris")
    with pytest.raises(NotFound):
        await store.abort(a_bulk(CANCEL).id, by="bob")


async def test_an_operation_shows_what_was_asked_for(env: DriverEnv) -> None:
    store = store_of(env)
    jobs = JobFilter(queue="mail", created_after=env.now() - HOUR, created_before=env.now() + HOUR)
    bulk = a_bulk(CANCEL, State.READY, name=NAME, jobs=jobs, reason="moved")
    made = await store.make(bulk)
    assert (made.by, made.reason, made.by_ids, made.created_at) == ("ada", "moved", False, env.now())
    assert made.jobs == bulk.jobs
    assert await store.find(bulk.id) == made
    assert await store.now() == env.now()


async def test_items_are_given_by_their_ids_and_by_verdict(env: DriverEnv) -> None:
    store = store_of(env)
    jobs = [await dead(env, key="k"), await dead(env), await dead(env, key="k"), await env.enqueue()]
    bulk = a_bulk(RETRY, ids=jobs)
    made = await store.make(bulk)
    assert [item.verdict for item in await store.items(made.id)] == [None] * 4
    await worked_off(store, made)
    assert [item.job_id for item in await store.items(made.id, limit=2)] == jobs[:2]
    assert [item.job_id for item in await store.items(made.id, after=jobs[1])] == jobs[2:]
    failed, both = [BulkVerdict.FAILED], [BulkVerdict.FAILED, BulkVerdict.DONE]
    assert [item.job_id for item in await store.items(made.id, verdicts=failed)] == jobs[2:]
    assert [item.job_id for item in await store.items(made.id, verdicts=failed, after=jobs[2])] == jobs[3:]
    assert [item.job_id for item in await store.items(made.id, verdicts=both, limit=3)] == jobs[:3]
    assert (await store.items(made.id, limit=1))[0].decided_at == env.now()
    assert await store.items(made.id, verdicts=[BulkVerdict.CHANGED]) == ()


async def test_old_operations_are_trimmed_and_running_ones_never(env: DriverEnv) -> None:
    store = store_of(env)
    for _ in range(3):
        await env.enqueue()
    ended = await done(store, a_bulk(CANCEL))
    await env.enqueue()
    running = await store.make(a_bulk(CANCEL))
    await env.advance(BULK_KEPT)
    assert await store.trim() == 0
    await env.advance(timedelta(seconds=1))
    assert [await store.trim(2), await store.trim(2), await store.trim(2)] == [2, 2, 0]
    assert await store.find(ended.id) is None
    assert await store.items(ended.id) == ()
    assert await store.find(running.id) == running
