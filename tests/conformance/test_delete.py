from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import Action, AuditEntry
from app.domain.edit import version_of
from app.domain.errors import JobNotFound, JobStateConflict, PreconditionFailed
from app.domain.job import JobId
from app.domain.outcome import Cancelled, Completed, Held, Suspended
from app.domain.state import State
from app.domain.step import NewNotes
from tests.conformance.endings import Ending, every_ending
from tests.conformance.runs import (
    HOUR,
    a_call,
    a_child,
    a_sleep,
    called,
    claim_child,
    enlist,
    record,
    settle,
    suspend,
    suspended,
)
from tests.support.audit import an_entry, details_of, rows_of
from tests.support.drivers import NAME, DriverEnv, PostgresEnv, new_id

MINUTE = timedelta(minutes=1)
# What stays of a job that is gone: who ran and drained, job types, what operators did, promises about its work.
_STAYS = {"job_name", "audit", "worker", "live_key", "source", "purge_mark"}


def _entry(job_id: JobId) -> AuditEntry:
    return an_entry(Action.JOB_DELETE, job_id)


async def _held(env: DriverEnv, **fields: Any) -> JobId:
    token = (await env.running(**fields)).token
    await env.close_attempt(token, Held(reason="does not fit"))
    return token.job_id


@every_ending
async def test_an_ended_job_is_gone(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {"tenant": "acme"})
    state = (await env.describe(job_id)).state
    await env.driver.delete(job_id, audit=_entry(job_id))
    assert await env.driver.describe(job_id) is None
    assert await env.ledger(job_id) == ()
    assert await env.driver.run(job_id) is None
    assert await env.driver.finished_among([job_id]) == {job_id}
    (row,) = await rows_of(env.driver, job_id)
    assert (row.outcome, row.tenant, row.reason) == ("done", "acme", "a look")
    assert details_of(row) == {"name": NAME, "queue": "default", "state": state.value}
    with pytest.raises(JobNotFound):
        await env.driver.delete(job_id, audit=_entry(job_id))
    assert len(await rows_of(env.driver, job_id)) == 1


async def test_a_held_job_is_gone_and_its_key_free(env: DriverEnv) -> None:
    job_id = await _held(env, key="k", deadline=HOUR)
    await env.driver.delete(job_id)
    assert await env.driver.describe(job_id) is None
    assert (await env.enqueue_again(key="k")).deduped is False
    await env.advance(2 * HOUR)
    assert await env.driver.expire() == ()


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_key_within_its_window_outlives_its_job(env: DriverEnv, is_held: bool) -> None:
    fields: dict[str, Any] = {"key": "k", "dedupe_for": HOUR}
    job_id = await _held(env, **fields) if is_held else await env.enqueue(**fields)
    if not is_held:
        await env.driver.cancel(job_id, reason="stop")
    await env.driver.delete(job_id)
    again = await env.enqueue_again(key="k")
    assert (again.id, again.deduped) == (job_id, True)
    await env.advance(2 * HOUR)
    assert (await env.enqueue_again(key="k")).deduped is False


async def test_a_key_that_moved_on_stays_with_its_job(env: DriverEnv) -> None:
    job_id = await env.enqueue(key="k")
    await env.driver.cancel(job_id, reason="stop")
    second = await env.enqueue(key="k")
    await env.driver.delete(job_id)
    assert (await env.enqueue_again(key="k")).id == second


async def test_a_source_outlives_its_job(env: DriverEnv) -> None:
    source = new_id()
    job_id = await env.enqueue(source_id=source)
    await env.driver.cancel(job_id, reason="stop")
    await env.driver.delete(job_id)
    again = await env.enqueue_again(source_id=source)
    assert (again.id, again.deduped) == (job_id, True)


async def test_nothing_about_it_alone_is_left(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker, max_queue_time=HOUR, deadline=HOUR, key="k")
    await record(env, held.token, "load")
    await env.driver.note([NewNotes(token=held.token, lines=("a line",), progress=None)])
    assert await suspend(env, held, a_sleep(delay=MINUTE)) is State.SUSPENDED
    await env.advance(2 * MINUTE)
    await env.driver.wake()
    again = await env.claim_one(worker)
    await env.close_attempt(again.token, Held(reason="does not fit"))
    await env.driver.delete(held.token.job_id)
    assert await env.driver.describe(held.token.job_id) is None
    if isinstance(env, PostgresEnv):
        left = await _rows(env)
        assert {table: count for table, count in left.items() if table not in _STAYS and count} == {}


async def _rows(env: PostgresEnv) -> dict[str, int]:
    async with env.engine.connect() as connection:
        tables = await connection.exec_driver_sql(
            "select tablename from pg_tables where schemaname = 'outlast' and tablename <> 'alembic_version'"
        )
        counts = {}
        for (table,) in tables:
            counts[table] = (await connection.exec_driver_sql(f"select count(*) from outlast.{table}")).scalar_one()
        return counts


@pytest.mark.parametrize("state", [State.READY, State.DELAYED, State.RUNNING, State.SUSPENDED])
async def test_a_job_that_may_still_run_is_refused(env: DriverEnv, state: State) -> None:
    match state:
        case State.READY:
            job_id = await env.enqueue()
        case State.DELAYED:
            job_id = await env.enqueue(delay=HOUR)
        case State.RUNNING:
            job_id = (await env.running()).token.job_id
        case _:
            job_id = (await suspended(env, a_sleep())).token.job_id
    with pytest.raises(JobStateConflict) as refused:
        await env.driver.delete(job_id, audit=_entry(job_id))
    assert refused.value.details["state"] == state
    assert (await env.describe(job_id)).state is state
    assert await rows_of(env.driver, job_id) == []


async def test_a_version_that_has_passed_is_refused(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    await env.driver.cancel(job_id, reason="stop")
    seen = version_of(await env.describe(job_id))
    await env.driver.retry(job_id)
    await env.driver.cancel(job_id, reason="again")
    with pytest.raises(PreconditionFailed):
        await env.driver.delete(job_id, versions=frozenset({seen}))
    await env.driver.delete(job_id, versions=frozenset({version_of(await env.describe(job_id))}))
    assert await env.driver.describe(job_id) is None


async def test_absent_and_foreign_jobs_are_not_found_alike(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme")
    await env.driver.cancel(job_id, reason="stop")
    for wanted in (new_id(), job_id):
        with pytest.raises(JobNotFound):
            await env.driver.delete(wanted, tenant="other")
    await env.driver.delete(job_id, tenant="acme")
    assert await env.driver.describe(job_id) is None


# --- families


async def test_a_held_child_that_is_deleted_wakes_its_parent(env: DriverEnv) -> None:
    parent, child = await called(env)
    await settle(env, child, Held(reason="does not fit"))
    await env.driver.delete(child.token.job_id)
    assert (await env.describe(parent.token.job_id)).state is State.READY


async def test_the_children_of_a_held_run_are_cancelled_with_it(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent = await env.running(worker)
    child = a_child(parent)
    call = a_call(child, number=1)
    assert await suspend(env, parent, a_sleep(delay=MINUTE), call) is State.SUSPENDED
    await claim_child(env, worker, child.id)
    await env.advance(2 * MINUTE)
    await env.driver.wake()
    again = await env.claim_one(worker)
    await env.close_attempt(again.token, Held(reason="does not fit"))
    await env.driver.delete(parent.token.job_id)
    assert (await env.describe(child.id)).state is State.CANCELLED


async def test_the_result_of_a_child_is_given_on_before_it_is_deleted(env: DriverEnv) -> None:
    """Its parent was not told of its end, as after a crash in between."""
    parent, child = await called(env)
    await settle(env, child, Completed(result='"sent"'), is_child=False)
    await env.driver.delete(child.token.job_id)
    (step,) = (await env.driver.history(parent.token.job_id, parent.run_id)).steps
    assert step.value == '"sent"'


async def test_an_ended_child_that_was_told_leaves_its_parent_alone(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await settle(env, child, Cancelled(reason="not needed"))
    again = await env.claim_one(worker)
    assert await _suspended_again(env, again) is State.SUSPENDED
    await env.driver.delete(child.token.job_id)
    assert (await env.describe(parent.token.job_id)).state is State.SUSPENDED


async def _suspended_again(env: DriverEnv, held: Any) -> State:
    await settle(env, held, Suspended(waits=(a_sleep("later", 1),)), has_waits=True)
    return (await env.describe(held.token.job_id)).state
