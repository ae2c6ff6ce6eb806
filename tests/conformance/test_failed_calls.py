"""A call that failed stays what it was to a run that has gone on from it, whatever is done to the job or the child."""

from __future__ import annotations

import pytest

from app.domain.job import ClaimedJob
from app.domain.outcome import Cancelled, CancelVerdict, Completed, Retried
from app.domain.state import State
from app.domain.step import RetryMode
from tests.conformance.runs import (
    CHILD,
    HOUR,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    a_step,
    an_event,
    at,
    called,
    claim_child,
    die,
    emit,
    enlist,
    history,
    known,
    settle,
    state_of,
    steps,
    suspend,
    the_wait,
    waits,
)
from tests.support.drivers import ERROR, DriverEnv, new_id, new_job


async def gone_on(env: DriverEnv) -> tuple[ClaimedJob, ClaimedJob]:
    """Give a running job that has recorded `a`, seen its call fail, and recorded `b` and `c`; and the dead child."""
    worker = await enlist(env)
    held = await env.running(worker)
    await env.driver.record_step(held.token, a_step("a", 0))
    await env.advance(SECOND)
    child = a_child(held)
    await suspend(env, held, a_call(child, number=1))
    await env.advance(SECOND)
    failed = await claim_child(env, worker, child.id)
    await die(env, failed)
    held = await env.claim_one(worker)
    for name, number in (("b", 2), ("c", 3)):
        await env.advance(SECOND)
        await env.driver.record_step(held.token, a_step(name, number))
    return held, failed


async def test_a_cancel_keeps_what_has_failed(env: DriverEnv) -> None:
    held, child = await gone_on(env)
    job_id = held.token.job_id
    await suspend(env, held, an_event(number=4))
    await env.driver.cancel(job_id, reason="stop")
    assert await waits(env, job_id) == ["call"]
    await env.driver.retry(job_id)
    again = await env.claim_one(held.token.worker_id)
    wait = await the_wait(env, job_id)
    assert (wait.child_id, wait.child_state, wait.child_error_type) == (child.token.job_id, State.DEAD, ERROR.type)
    assert await steps(env, job_id) == ["a", "b", "c"]
    assert await suspend(env, again, an_event(number=4)) is State.SUSPENDED
    assert (await emit(env)).matched == 1


async def test_a_cancel_by_the_caller_keeps_it_too(env: DriverEnv) -> None:
    held, _ = await gone_on(env)
    await settle(env, held, Cancelled(reason="not needed"), has_waits=True)
    assert await waits(env, held.token.job_id) == ["call"]


async def test_a_cancel_drops_what_it_cancels(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await env.driver.cancel(parent.token.job_id, reason="stop")
    assert (await waits(env, parent.token.job_id), await state_of(env, child.token.job_id)) == ([], State.CANCELLED)


async def test_a_cancel_of_a_cancelled_job_keeps_it(env: DriverEnv) -> None:
    held, _ = await gone_on(env)
    await env.driver.cancel(held.token.job_id, reason="stop")
    assert await env.driver.cancel(held.token.job_id, reason="again") is CancelVerdict.ALREADY_FINISHED
    assert await waits(env, held.token.job_id) == ["call"]


async def test_a_child_that_is_deleted_in_between_stays_failed(env: DriverEnv) -> None:
    held, child = await gone_on(env)
    await env.driver.delete(child.token.job_id)
    await env.driver.cancel(held.token.job_id, reason="stop")
    await env.driver.retry(held.token.job_id)
    wait = await the_wait(env, held.token.job_id)
    assert (wait.name, wait.is_child_gone, wait.has_failed) == ("call", True, True)
    new = new_id()
    await env.driver.fork(held.token.job_id, new_id=new)
    assert (await the_wait(env, new)).is_child_gone


@pytest.mark.parametrize(("from_step", "kept"), [("c", ["call"]), ("b", ["call"]), ("a", [])], ids=str)
async def test_a_retry_from_a_step_keeps_what_failed_before_it(env: DriverEnv, from_step: str, kept: list[str]) -> None:
    held, _ = await gone_on(env)
    await die(env, held)
    await env.driver.retry(held.token.job_id, from_step=from_step)
    assert await waits(env, held.token.job_id) == kept


async def test_a_step_of_another_branch_is_behind_what_began_before_it_ended(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    early, late = a_child(held), a_child(held)
    await suspend(env, held, a_call(early, "early", place=at(0, "0.0")))
    await die(env, await claim_child(env, worker, early.id))
    held = await env.claim_one(worker)
    await env.advance(SECOND)
    await env.driver.record_step(held.token, a_step("cut", place=at(0, "0.1")))
    await env.advance(SECOND)
    await suspend(env, held, a_call(late, "late", place=at(0, "0.2")))
    await die(env, await claim_child(env, worker, late.id))
    held = await env.claim_one(worker)
    assert await waits(env, held.token.job_id) == ["early", "late"]
    await die(env, held)
    new = new_id()
    await env.driver.fork(held.token.job_id, new_id=new, from_step="cut")
    await env.driver.retry(held.token.job_id, from_step="cut")
    assert [await waits(env, job_id) for job_id in (held.token.job_id, new)] == [["early"], ["early"]]


async def test_a_fresh_run_knows_nothing_of_it(env: DriverEnv) -> None:
    held, _ = await gone_on(env)
    await env.driver.cancel(held.token.job_id, reason="stop")
    await env.driver.retry(held.token.job_id, mode=RetryMode.FRESH)
    assert await waits(env, held.token.job_id) == []


@pytest.mark.parametrize(
    ("from_step", "kept"),
    [(None, ["call"]), ("c", ["call"]), ("b", ["call"]), ("a", [])],
    ids=str,
)
async def test_a_fork_takes_it_along(env: DriverEnv, from_step: str | None, kept: list[str]) -> None:
    held, _ = await gone_on(env)
    new = new_id()
    await env.driver.fork(held.token.job_id, new_id=new, from_step=from_step)
    assert await waits(env, new) == kept
    copy, old = (await history(env, new)).waits, (await history(env, held.token.job_id)).waits
    assert list(copy) == [wait for wait in old if wait.name in kept]


async def test_what_a_fork_took_along_is_its_own(env: DriverEnv) -> None:
    held, _ = await gone_on(env)
    new = new_id()
    await env.driver.fork(held.token.job_id, new_id=new)
    await settle(env, held, Completed(), has_waits=True)
    claimed = await env.claim_one(held.token.worker_id)
    assert (await waits(env, held.token.job_id), await waits(env, new)) == ([], ["call"])
    await settle(env, claimed, Retried(error=ERROR, delay=SECOND), has_waits=True, forgets=("call",))
    assert await waits(env, new) == []


async def test_a_child_that_lives_again_does_not_answer_a_run_that_has_gone_on(env: DriverEnv) -> None:
    held, child = await gone_on(env)
    job_id = held.token.job_id
    assert await suspend(env, held, a_sleep(number=4, delay=HOUR)) is State.SUSPENDED
    await env.driver.retry(child.token.job_id)
    await settle(env, await claim_child(env, held.token.worker_id, child.token.job_id), Completed(result="1"))
    await env.driver.sweep_waits()
    assert await state_of(env, job_id) is State.SUSPENDED
    assert (await steps(env, job_id), await waits(env, job_id)) == (["a", "b", "c"], ["call", "nap"])
    await env.advance(HOUR)
    await env.driver.wake()
    again = await env.claim_one(held.token.worker_id)
    assert await suspend(env, again, a_sleep("next", 5)) is State.SUSPENDED
    assert await steps(env, job_id) == ["a", "b", "c", "nap"]
    await env.driver.cancel(job_id, reason="stop")
    assert await waits(env, job_id) == ["call"]


async def test_a_child_that_lives_again_does_not_answer_an_attempt_that_was_told(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await die(env, child)
    held = await env.claim_one(worker)
    await env.driver.retry(child.token.job_id)
    await settle(env, await claim_child(env, worker, child.token.job_id), Completed(result="1"))
    await env.driver.record_step(held.token, a_step("instead", 1))
    assert (await steps(env, parent.token.job_id), await waits(env, parent.token.job_id)) == (["instead"], ["call"])


async def test_it_answers_a_run_that_asks_again(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await die(env, child)
    held = await env.claim_one(worker)
    await env.driver.retry(child.token.job_id)
    await settle(env, await claim_child(env, worker, child.token.job_id), Completed(result="1"))
    assert await suspend(env, held, known(a_call(new_job()))) is State.READY
    (step,) = (await history(env, parent.token.job_id)).steps
    assert (step.name, step.value, step.child_id) == ("call", "1", child.token.job_id)
    assert await waits(env, parent.token.job_id) == []


async def test_a_cancel_keeps_a_call_whose_child_is_done_though_nobody_was_told(env: DriverEnv) -> None:
    worker = await enlist(env)
    parent, child = await called(env, worker)
    await settle(env, child, Completed(result="1"), is_child=False)  # and its worker dies before it can say so
    await env.driver.cancel(parent.token.job_id, reason="stop")
    await env.driver.retry(parent.token.job_id)
    again = await env.claim_one(worker)
    assert await suspend(env, again, known(a_call(new_job()))) is State.READY
    assert [step.value for step in (await history(env, parent.token.job_id)).steps] == ["1"]


async def test_a_cancel_ends_a_child_that_lives_again_and_keeps_the_call(env: DriverEnv) -> None:
    held, child = await gone_on(env)
    await env.driver.retry(child.token.job_id)
    await env.driver.cancel(held.token.job_id, reason="stop")
    assert await state_of(env, child.token.job_id) is State.CANCELLED
    assert await waits(env, held.token.job_id) == ["call"]


# --- what a run was told, and when


async def test_a_call_that_is_not_asked_for_any_more_wakes_nobody(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    running = await claim_child(env, worker, child.id)
    await env.advance(SECOND)
    await env.driver.wake()
    assert await suspend(env, await env.claim_one(worker), a_sleep("next", 2)) is State.SUSPENDED
    await die(env, running)
    assert await state_of(env, held.token.job_id) is State.SUSPENDED


async def test_a_run_that_suspends_over_a_failed_call_is_told_then(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    child = a_child(held)
    await suspend(env, held, a_call(child), a_sleep(number=1, delay=SECOND))
    running = await claim_child(env, worker, child.id)
    await env.advance(SECOND)
    await env.driver.wake()
    again = await env.claim_one(worker)
    await die(env, running)
    assert await suspend(env, again, known(a_call(new_job()))) is State.READY
    await env.driver.retry(child.id)
    await settle(env, await claim_child(env, worker, child.id), Completed(result="1"))
    assert (await steps(env, held.token.job_id), await waits(env, held.token.job_id)) == (["nap"], ["call"])


async def test_a_run_that_calls_a_job_that_is_dead_is_told_then(env: DriverEnv) -> None:
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k", dedupe_for=HOUR)
    await die(env, await claim_child(env, worker, there))
    held = await env.running(worker)
    assert await suspend(env, held, a_call(a_child(held, key="k"))) is State.READY
    await env.driver.retry(there)
    await settle(env, await claim_child(env, worker, there), Completed(result="1"), is_child=True)
    assert (await steps(env, held.token.job_id), await waits(env, held.token.job_id)) == ([], ["call"])
