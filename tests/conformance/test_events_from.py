"""Since when events are for a run: its job's enqueue, its staging in an outbox, or that of what it was forked from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.state import State
from app.outbox.passes import Passes
from tests.conformance.gated import ALL, admit_one, declare
from tests.conformance.runs import HOUR, MINUTE, an_event, emit, enlist, history, record, suspend, waits
from tests.support.drivers import DriverEnv, new_id, new_job
from tests.support.outbox import BATCH, Outbox

TICK = timedelta(milliseconds=1)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keyed": {"key": "order:7"},
    "limited": {"limits": (ALL,)},
}


async def published(outbox: Outbox, passes: Passes, worker: WorkerId, *, is_limited: bool = False) -> ClaimedJob:
    """Publish all that is staged, one job, and claim it."""
    assert (await passes.once(BATCH)).published == 1
    if is_limited:
        await declare(outbox.env)
        return await admit_one(outbox.env, worker)
    return await outbox.env.claim_one(worker)


async def found(env: DriverEnv, held: ClaimedJob) -> str | None:
    """Give the payload that the run's wait was given."""
    (value,) = [step.value for step in (await history(env, held.token.job_id)).steps if step.has_event]
    return value


async def forked(env: DriverEnv, worker: WorkerId, job_id: JobId, from_step: str | None = None) -> ClaimedJob:
    """Fork a job and claim the new one, the only one that is ready."""
    new = new_id()
    await env.driver.fork(job_id, new_id=new, from_step=from_step)
    held = await env.claim_one(worker)
    assert held.token.job_id == new
    return held


# --- staged in an outbox


@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
async def test_an_event_between_staging_and_publishing_is_found(
    outbox: Outbox, passes: Passes, fields: dict[str, Any]
) -> None:
    env = outbox.env
    worker = await enlist(env)
    await outbox.staged(**fields)
    await env.advance(MINUTE)
    await emit(env, "1")
    await env.advance(MINUTE)
    held = await published(outbox, passes, worker, is_limited="limits" in fields)
    assert await suspend(env, held, an_event()) is State.READY
    assert await found(env, held) == "1"


async def test_an_event_before_the_commit_that_staged_the_job_is_found(outbox: Outbox, passes: Passes) -> None:
    env = outbox.env
    worker = await enlist(env)
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, [new_job()])
        await env.advance(MINUTE)
        await emit(env, "1")
    held = await published(outbox, passes, worker)
    assert await suspend(env, held, an_event()) is State.READY
    assert await found(env, held) == "1"


@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
async def test_an_event_before_the_staging_is_not_found(outbox: Outbox, passes: Passes, fields: dict[str, Any]) -> None:
    env = outbox.env
    worker = await enlist(env)
    await emit(env)
    await env.advance(TICK)
    await outbox.staged(**fields)
    held = await published(outbox, passes, worker, is_limited="limits" in fields)
    assert await suspend(env, held, an_event()) is State.SUSPENDED


async def test_a_staged_job_is_as_old_as_its_publishing(outbox: Outbox, passes: Passes) -> None:
    env = outbox.env
    worker = await enlist(env)
    await outbox.staged()
    await env.advance(HOUR)
    held = await published(outbox, passes, worker)
    view = await env.describe(held.token.job_id)
    assert view.created_at == env.now()


async def test_a_job_with_a_key_that_was_never_staged_finds_nothing_from_before(env: DriverEnv) -> None:
    await emit(env)
    await env.advance(TICK)
    held = await env.running(await enlist(env), key="order:7")
    assert await suspend(env, held, an_event()) is State.SUSPENDED


# --- forked


async def test_a_fork_from_before_a_wait_finds_the_event_that_ended_it(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await record(env, held.token, "a")
    await env.advance(MINUTE)
    await emit(env, "7")
    assert await suspend(env, held, an_event(number=1)) is State.READY
    source = (await env.claim_one(worker)).token.job_id
    await env.advance(HOUR)

    first = await forked(env, worker, source, "approval")
    assert await suspend(env, first, an_event(number=1)) is State.READY
    assert await found(env, first) == "7"
    await env.claim_one(worker)
    again = await forked(env, worker, first.token.job_id, "a")
    assert await suspend(env, again, an_event()) is State.READY
    assert await found(env, again) == "7"


async def test_a_fork_takes_no_event_that_its_history_has(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await emit(env, "7")
    assert await suspend(env, held, an_event()) is State.READY
    source = (await env.claim_one(worker)).token.job_id
    fork = await forked(env, worker, source)
    assert await suspend(env, fork, an_event("second", 1)) is State.SUSPENDED


async def test_a_fork_finds_no_event_from_before_what_it_was_forked_from(env: DriverEnv) -> None:
    worker = await enlist(env)
    await emit(env)
    await env.advance(TICK)
    held = await env.running(worker)
    fork = await forked(env, worker, held.token.job_id)
    assert await suspend(env, fork, an_event()) is State.SUSPENDED
    assert await waits(env, fork.token.job_id) == ["approval"]


async def test_a_fork_is_as_old_as_its_making(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await env.advance(HOUR)
    fork = await forked(env, worker, held.token.job_id)
    assert (await env.describe(fork.token.job_id)).created_at == env.now()


async def test_a_fork_of_a_staged_job_finds_what_came_before_its_publishing(outbox: Outbox, passes: Passes) -> None:
    env = outbox.env
    worker = await enlist(env)
    await outbox.staged()
    await env.advance(MINUTE)
    await emit(env, "1")
    await env.advance(MINUTE)
    held = await published(outbox, passes, worker)
    fork = await forked(env, worker, held.token.job_id)
    assert await suspend(env, fork, an_event()) is State.READY
    assert await found(env, fork) == "1"
