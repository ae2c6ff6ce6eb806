from __future__ import annotations

import pytest

from app.domain.errors import JobNotFound, NotFound
from app.domain.job import ClaimedJob, Counters, Enqueued, JobId
from app.domain.outcome import Completed, Held
from app.domain.state import State
from app.domain.step import RetryMode, RunHistory, StepView
from app.drivers.protocol import PurgeQuery
from tests.conformance.endings import Ending, cancelled_before_start, completed, crashed_too_often, dead_lettered
from tests.conformance.runs import (
    HOUR,
    MINUTE,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    a_step,
    an_event,
    claim_child,
    die,
    emit,
    enlist,
    history,
    known,
    order,
    record,
    settle,
    state_of,
    steps,
    suspend,
    suspended,
    waits,
)
from tests.support.drivers import DriverEnv, new_id


async def fork(env: DriverEnv, job_id: JobId, from_step: str | None = None) -> JobId:
    """Fork a job and give the new one's id."""
    new = new_id()
    answer = await env.driver.fork(job_id, new_id=new, from_step=from_step)
    assert answer == Enqueued(id=new, run_id=(await env.describe(new)).run_id, deduped=False)
    return new


def facts(step: StepView) -> tuple[object, ...]:
    """Give all of a step but its number, which is each record's own."""
    return (
        step.name,
        step.kind,
        step.place,
        step.value,
        step.claim_no,
        step.code_version,
        step.started_at,
        step.ended_at,
        step.has_event,
        step.child_id,
    )


async def with_a_run(env: DriverEnv) -> ClaimedJob:
    """Give a running job that has recorded a, an event, a call and b, and waits for nothing."""
    worker = await enlist(env)
    held = await env.running(worker)
    await record(env, held.token, "a")
    await emit(env, "7")
    await suspend(env, held, an_event(number=1))
    held = await env.claim_one(worker)
    child = a_child(held)
    await suspend(env, held, a_call(child, number=2))
    await settle(env, await claim_child(env, worker, child.id), Completed(result="1"))
    held = await env.claim_one(worker)
    await env.advance(SECOND)
    await env.driver.record_step(held.token, a_step("b", 3, lasted=SECOND))
    return held


async def test_a_fork_is_a_new_job_of_the_same_kind(env: DriverEnv) -> None:
    job_id = await env.enqueue(
        queue="mail",
        priority=2,
        tenant="acme",
        payload='{"n":  1.5e300}',
        max_attempts=7,
        max_crashes=2,
        timeout=MINUTE,
        tags=("a", "b"),
        meta='{"m":  1}',
        key="k",
        dedupe_for=HOUR,
    )
    await env.advance(MINUTE)
    new = await fork(env, job_id)
    old, view = await env.describe(job_id), await env.describe(new)
    assert (view.id, view.state, view.counters) == (new, State.READY, Counters())
    assert view.run_id not in {new, old.run_id}
    assert (view.name, view.queue, view.priority, view.tenant) == (old.name, "mail", 2, "acme")
    assert (view.payload, view.timeout_ms) == ('{"n":  1.5e300}', 60_000)
    assert (view.max_attempts, view.max_crashes) == (7, 2)
    assert (view.tags, view.meta) == (("a", "b"), '{"m":  1}')
    assert (view.key, view.key_expires_at, view.parent_id) == (None, None, job_id)
    assert (view.created_at, view.run_at, view.last_outcome, view.error) == (env.now(), None, None, None)
    assert await env.ledger(new) == ()
    assert await env.describe(job_id) == old


async def test_a_fork_begins_with_the_whole_history(env: DriverEnv) -> None:
    held = await with_a_run(env)
    new = await fork(env, held.token.job_id)
    old, copy = await history(env, held.token.job_id), await history(env, new)
    assert [step.name for step in old.steps] == ["a", "approval", "call", "b"]
    assert [facts(step) for step in copy.steps] == [facts(step) for step in old.steps]
    assert copy.waits == ()
    seqs = [step.seq for step in (*old.steps, *copy.steps)]
    assert seqs == sorted(set(seqs))


@pytest.mark.parametrize(
    ("from_step", "kept"), [("b", ["a", "approval", "call"]), ("call", ["a", "approval"]), ("a", [])]
)
async def test_a_fork_goes_up_to_a_step(env: DriverEnv, from_step: str, kept: list[str]) -> None:
    held = await with_a_run(env)
    new = await fork(env, held.token.job_id, from_step)
    assert await steps(env, new) == kept
    assert await steps(env, held.token.job_id) == ["a", "approval", "call", "b"]


async def test_two_runs_part_at_the_fork(env: DriverEnv) -> None:
    held = await with_a_run(env)
    new = await fork(env, held.token.job_id, "b")
    claimed = await env.claim_one(held.token.worker_id)
    assert (claimed.token.job_id, claimed.token.claim_no) == (new, 1)
    assert claimed.run_id == (await env.describe(new)).run_id
    assert claimed.parent_id == held.token.job_id
    assert await env.driver.record_step(claimed.token, a_step("b", 3, value="2"))
    await env.driver.record_step(held.token, a_step("c", 4))
    assert await steps(env, new) == ["a", "approval", "call", "b"]
    assert await steps(env, held.token.job_id) == ["a", "approval", "call", "b", "c"]
    assert [step.value for step in (await history(env, new)).steps][-1] == "2"


async def test_a_fork_goes_in_as_new_work(env: DriverEnv) -> None:
    held = await with_a_run(env)
    first = await env.enqueue()
    new = await fork(env, held.token.job_id)
    assert await order(env, held.token.worker_id) == [first, new]


async def test_waits_are_left_behind(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, an_event(), a_sleep(number=1), worker=worker)
    new = await fork(env, held.token.job_id)
    assert (await waits(env, new), await waits(env, held.token.job_id)) == ([], ["approval", "nap"])
    assert await suspend(env, await env.claim_one(worker), an_event()) is State.SUSPENDED
    assert (await emit(env)).matched == 2


async def test_a_fork_has_taken_what_its_history_has_taken(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await emit(env, "1")
    await suspend(env, held, an_event())
    await env.claim_one(worker)
    new = await fork(env, held.token.job_id)
    claimed = await env.claim_one(worker)
    assert await suspend(env, claimed, an_event("next", 1)) is State.SUSPENDED
    assert await waits(env, new) == ["next"]


async def test_limits_of_the_first_life_are_left_behind(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=HOUR, deadline=2 * HOUR, max_queue_time=2 * HOUR)
    new = await fork(env, job_id)
    await env.advance(3 * HOUR)
    assert [one.job_id for one in await env.driver.expire()] == [job_id]
    claimed = await env.claim_one(await enlist(env))
    assert (claimed.token.job_id, claimed.deadline_in, claimed.run_at) == (new, None, None)


@pytest.mark.parametrize(
    "ending", [completed, dead_lettered, crashed_too_often, cancelled_before_start], ids=lambda way: way.__name__
)
async def test_an_ended_job_can_be_forked(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {})
    before = await env.describe(job_id)
    new = await fork(env, job_id)
    assert await state_of(env, new) is State.READY
    assert await env.describe(job_id) == before


async def test_a_held_job_can_be_forked(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await record(env, held.token, "a", "b")
    await env.close_attempt(held.token, Held(reason="does not fit", version="old"))
    new = await fork(env, held.token.job_id, "b")
    assert await order(env, worker) == [new]
    assert await steps(env, new) == ["a"]
    assert await state_of(env, held.token.job_id) is State.HELD


async def test_the_run_that_a_job_has_now_is_forked(env: DriverEnv) -> None:
    held = await with_a_run(env)
    await die(env, held)
    await env.driver.retry(held.token.job_id, mode=RetryMode.FRESH)
    assert await history(env, await fork(env, held.token.job_id)) == RunHistory()


async def test_the_same_fork_twice_is_one(env: DriverEnv) -> None:
    held = await with_a_run(env)
    new = await fork(env, held.token.job_id, "b")
    before = await env.describe(new), await history(env, new)
    await env.driver.record_step(held.token, a_step("c", 4))
    answer = await env.driver.fork(held.token.job_id, new_id=new, from_step="b")
    assert answer == Enqueued(id=new, run_id=before[0].run_id, deduped=False)
    assert (await env.describe(new), await history(env, new)) == before
    assert (await env.driver.stats()).by_state[State.READY] == 1


async def test_a_fork_outlives_what_it_was_forked_from(env: DriverEnv) -> None:
    held = await with_a_run(env)
    new = await fork(env, held.token.job_id)
    await env.driver.cancel(held.token.job_id, reason="stop")
    assert await state_of(env, new) is State.READY
    await env.advance(2 * MINUTE)
    assert await env.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=MINUTE)) == 1
    assert await steps(env, new) == ["a", "approval", "call", "b"]


async def test_what_is_absent_or_foreign_is_not_found(env: DriverEnv) -> None:
    held = await env.running(await enlist(env), tenant="acme")
    await record(env, held.token, "a")
    await suspend(env, held, an_event(number=1))
    for job_id, tenant in ((new_id(), None), (held.token.job_id, "other")):
        with pytest.raises(JobNotFound):
            await env.driver.fork(job_id, new_id=new_id(), tenant=tenant)
    for missing in ("never", "approval"):
        with pytest.raises(NotFound):
            await env.driver.fork(held.token.job_id, new_id=new_id(), from_step=missing)
    assert (await env.driver.stats()).by_state[State.READY] == 0
    await env.driver.fork(held.token.job_id, new_id=new_id(), from_step="a", tenant="acme")


async def test_a_forked_wait_that_is_named_known_is_over(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, an_event(), worker=worker)
    await fork(env, held.token.job_id)
    assert await suspend(env, await env.claim_one(worker), known(an_event())) is State.READY
