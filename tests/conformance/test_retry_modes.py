from __future__ import annotations

from typing import Any

import pytest

from app.domain.errors import JobDuplicate, JobNotFound, JobStateConflict, NotFound, RequestInvalid
from app.domain.job import ClaimedJob, Counters
from app.domain.outcome import Completed, Retried
from app.domain.state import State
from app.domain.step import NewNotes, RetryMode, RunHistory
from app.drivers.reading import ListQuery
from tests.conformance.endings import Ending, every_retryable_ending
from tests.conformance.runs import (
    CHILD,
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
    record,
    settle,
    state_of,
    steps,
    suspend,
    suspended,
    waits,
)
from tests.support.drivers import ERROR, DriverEnv, new_id

FRESH = RetryMode.FRESH


async def dead_with_a_run(env: DriverEnv, **fields: Any) -> ClaimedJob:
    """Give a dead job that has recorded a, b, nap, c and waits for an event and a child that runs."""
    worker = await enlist(env)
    held = await env.running(worker, **fields)
    await record(env, held.token, "a", "b")
    child = a_child(held)
    await suspend(env, held, a_sleep(number=2, delay=SECOND), an_event(number=3), a_call(child, number=4))
    await claim_child(env, worker, child.id)
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await env.driver.record_step(held.token, a_step("c", 5))
    await die(env, held, has_waits=True)
    return held


async def child_state(env: DriverEnv, parent: ClaimedJob) -> State:
    run = await env.driver.run(parent.token.job_id)
    assert run is not None
    (child,) = run.children
    return await state_of(env, child)


# --- resume


async def test_a_resumed_run_goes_on_from_what_is_recorded(env: DriverEnv) -> None:
    held = await dead_with_a_run(env)
    before = await history(env, held.token.job_id)
    await env.driver.retry(held.token.job_id, mode=RetryMode.RESUME)
    assert await history(env, held.token.job_id) == before
    assert [step.name for step in before.steps] == ["a", "b", "nap", "c"]
    assert [wait.name for wait in before.waits] == ["approval", "call"]
    again = await env.claim_one(held.token.worker_id)
    assert (again.run_id, again.counters) == (held.run_id, Counters(attempt=1, claim_no=3))
    assert await child_state(env, held) is State.RUNNING


async def test_a_resumed_run_of_a_cancelled_job_has_no_waits(env: DriverEnv) -> None:
    held = await suspended(env, an_event())
    await env.driver.cancel(held.token.job_id, reason="stop")
    await env.driver.retry(held.token.job_id)
    again = await env.claim_one(await enlist(env))
    assert await history(env, held.token.job_id) == RunHistory()
    assert await suspend(env, again, an_event()) is State.SUSPENDED
    assert (await emit(env)).matched == 1


# --- from a step


@pytest.mark.parametrize(
    ("from_step", "kept"), [("c", ["a", "b", "nap"]), ("nap", ["a", "b"]), ("b", ["a"]), ("a", [])]
)
async def test_a_run_goes_on_from_before_a_step(env: DriverEnv, from_step: str, kept: list[str]) -> None:
    held = await dead_with_a_run(env)
    await env.driver.retry(held.token.job_id, from_step=from_step)
    assert (await steps(env, held.token.job_id), await waits(env, held.token.job_id)) == (kept, [])
    assert await child_state(env, held) is State.CANCELLED
    again = await env.claim_one(held.token.worker_id)
    assert again.run_id == held.run_id
    assert await env.driver.record_step(again.token, a_step(from_step, 9, value="2"))
    newest = (await history(env, held.token.job_id)).steps[-1]
    assert (newest.name, newest.value, newest.claim_no) == (from_step, "2", 3)


async def test_the_order_of_recording_says_what_comes_after(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    for name, number in (("z", 2), ("y", 0), ("x", 1)):
        await env.driver.record_step(held.token, a_step(name, number))
    await die(env, held)
    await env.driver.retry(held.token.job_id, from_step="y")
    assert await steps(env, held.token.job_id) == ["z"]


@pytest.mark.parametrize("missing", ["never", "approval"], ids=["unknown", "a wait"])
async def test_a_step_that_is_not_recorded_is_not_found(env: DriverEnv, missing: str) -> None:
    held = await dead_with_a_run(env, key="k")
    before = await env.describe(held.token.job_id), await history(env, held.token.job_id)
    with pytest.raises(NotFound):
        await env.driver.retry(held.token.job_id, from_step=missing)
    assert (await env.describe(held.token.job_id), await history(env, held.token.job_id)) == before
    assert (await env.enqueue_again(key="k")).deduped is False


async def test_a_step_of_another_run_is_not_found(env: DriverEnv) -> None:
    worker = await enlist(env)
    other, held = await env.running(worker), await env.running(worker)
    await record(env, other.token, "a")
    await die(env, held)
    with pytest.raises(NotFound):
        await env.driver.retry(held.token.job_id, from_step="a")


# --- fresh


async def test_a_fresh_run_is_new_and_empty(env: DriverEnv) -> None:
    held = await dead_with_a_run(env)
    rows = await env.ledger(held.token.job_id)
    await env.driver.retry(held.token.job_id, mode=FRESH)
    view = await env.describe(held.token.job_id)
    assert view.state is State.READY
    assert view.run_id not in {held.run_id, view.id}
    assert view.counters == Counters(claim_no=2)
    assert await history(env, held.token.job_id) == RunHistory()
    assert await env.driver.history(held.token.job_id, held.run_id) == RunHistory()
    assert await child_state(env, held) is State.CANCELLED
    assert await env.ledger(held.token.job_id) == rows
    (listed,) = [one for one in (await env.driver.list(ListQuery())).items if one.id == view.id]
    assert listed.run_id == view.run_id


async def test_a_fresh_run_records_for_itself(env: DriverEnv) -> None:
    held = await dead_with_a_run(env)
    await env.driver.retry(held.token.job_id, mode=FRESH)
    run_id = (await env.describe(held.token.job_id)).run_id
    again = await env.claim_one(held.token.worker_id)
    assert again.run_id == run_id
    assert await env.driver.record_step(again.token, a_step("a", 0, value="2"))
    assert await suspend(env, again, a_sleep("b", 1)) is State.SUSPENDED
    await env.advance(HOUR)
    await env.driver.wake()
    (first, second) = (await env.driver.history(held.token.job_id, run_id)).steps
    assert (first.name, first.value, first.claim_no) == ("a", "2", 3)
    assert (second.name, second.claim_no) == ("b", 3)
    again = await env.claim_one(held.token.worker_id)
    assert again.run_id == run_id
    await settle(env, again, Completed())
    assert (await env.describe(held.token.job_id)).run_id == run_id


async def test_an_enqueue_that_finds_the_job_names_the_run_it_has_now(env: DriverEnv) -> None:
    held = await dead_with_a_run(env, key="k")
    await env.driver.retry(held.token.job_id, mode=FRESH)
    run_id = (await env.describe(held.token.job_id)).run_id
    answer = await env.enqueue_again(key="k")
    assert (answer.id, answer.run_id, answer.deduped) == (held.token.job_id, run_id, True)


async def test_every_fresh_retry_makes_another_run(env: DriverEnv) -> None:
    held = await dead_with_a_run(env)
    seen = {held.run_id}
    for _ in range(2):
        await env.driver.retry(held.token.job_id, mode=FRESH)
        seen.add((await env.describe(held.token.job_id)).run_id)
        await env.driver.cancel(held.token.job_id, reason="stop")
    assert len(seen) == 3


async def test_a_fresh_run_has_no_notes(env: DriverEnv) -> None:
    held = await env.running(await enlist(env))
    await env.driver.note([NewNotes(held.token, lines=("one",), progress=(0.5, None))])
    await die(env, held)
    await env.driver.retry(held.token.job_id, mode=FRESH)
    run = await env.driver.run(held.token.job_id)
    assert run is not None
    assert (run.lines, run.progress) == ((), None)


@every_retryable_ending
async def test_every_ended_job_may_begin_anew(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {})
    await env.driver.retry(job_id, mode=FRESH)
    view = await env.describe(job_id)
    assert (view.state, view.state_reason, view.finished_at) == (State.READY, None, None)


async def test_a_child_that_was_deduped_outlives_the_run_that_waits(env: DriverEnv) -> None:
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k")
    held = await env.running(worker)
    await suspend(env, held, a_call(a_child(held, key="k")), a_sleep(number=1, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    await die(env, await env.claim_one(worker), has_waits=True)
    await env.driver.retry(held.token.job_id, mode=FRESH)
    assert await state_of(env, there) is State.READY


@pytest.mark.parametrize("how", [{"mode": FRESH}, {"from_step": "a"}], ids=repr)
async def test_a_refused_retry_leaves_the_run(env: DriverEnv, how: dict[str, Any]) -> None:
    held = await dead_with_a_run(env, key="k")
    other = await env.enqueue(key="k")
    before = await env.describe(held.token.job_id), await history(env, held.token.job_id)
    with pytest.raises(JobDuplicate) as refused:
        await env.driver.retry(held.token.job_id, **how)
    assert str(refused.value.details["existing_id"]) == str(other)
    assert (await env.describe(held.token.job_id), await history(env, held.token.job_id)) == before
    assert await child_state(env, held) is State.RUNNING


# --- refusals


async def test_a_fresh_run_from_a_step_is_refused(env: DriverEnv) -> None:
    held = await dead_with_a_run(env)
    before = await env.describe(held.token.job_id), await history(env, held.token.job_id)
    with pytest.raises(RequestInvalid) as refused:
        await env.driver.retry(held.token.job_id, mode=FRESH, from_step="a")
    assert refused.value.details["pointer"] == "/from_step"
    assert (await env.describe(held.token.job_id), await history(env, held.token.job_id)) == before


@pytest.mark.parametrize("how", [{"mode": FRESH}, {"from_step": "a"}], ids=repr)
async def test_live_and_done_jobs_are_a_state_conflict(env: DriverEnv, how: dict[str, Any]) -> None:
    worker = await enlist(env)
    running = await env.running(worker)
    asleep = await suspended(env, a_sleep(), worker=worker)
    done = await env.running(worker)
    await env.close_attempt(done.token, Completed())
    retried = await env.running(worker)
    await env.close_attempt(retried.token, Retried(error=ERROR, delay=MINUTE))
    expected = {
        running.token.job_id: State.RUNNING,
        asleep.token.job_id: State.SUSPENDED,
        done.token.job_id: State.DONE,
        retried.token.job_id: State.DELAYED,
        await env.enqueue(): State.READY,
    }
    for job_id, state in expected.items():
        with pytest.raises(JobStateConflict) as refused:
            await env.driver.retry(job_id, **how)
        assert refused.value.details["state"] == state
        assert await state_of(env, job_id) is state


async def test_absent_and_foreign_jobs_are_not_found(env: DriverEnv) -> None:
    held = await env.running(await enlist(env), tenant="acme")
    await record(env, held.token, "a")
    await die(env, held)
    for job_id, tenant in ((new_id(), None), (held.token.job_id, "other")):
        with pytest.raises(JobNotFound):
            await env.driver.retry(job_id, mode=FRESH, tenant=tenant)
        for step in ("a", "never recorded"):
            with pytest.raises(JobNotFound):
                await env.driver.retry(job_id, from_step=step, tenant=tenant)
    assert await state_of(env, held.token.job_id) is State.DEAD


async def test_a_known_wait_of_a_run_taken_back_is_over(env: DriverEnv) -> None:
    held = await dead_with_a_run(env)
    await env.driver.retry(held.token.job_id, from_step="c")
    again = await env.claim_one(held.token.worker_id)
    assert await suspend(env, again, known(an_event(number=3))) is State.READY
