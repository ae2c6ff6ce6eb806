from __future__ import annotations

from typing import Any

import pytest

from app.domain.errors import JobNotFound, JobStateConflict
from app.domain.job import ClaimedJob, Counters, WorkerId
from app.domain.outcome import (
    HAND_BACK,
    Completed,
    Held,
    OutcomeKind,
    SettleAnswer,
)
from app.domain.state import State
from app.domain.step import RetryMode
from tests.conformance.fences import Fence, every_fence
from tests.conformance.runs import (
    CHILD,
    HOUR,
    SECOND,
    called,
    enlist,
    order,
    record,
    state_of,
    steps,
    the_wait,
)
from tests.conformance.versions import REASON, diverged, fleet, held_for, publish
from tests.support.drivers import ERROR, DriverEnv, new_id

# --- held


async def test_held_work_is_released_when_its_code_comes_back(env: DriverEnv) -> None:
    job_id, new = await held_for(env, "old")
    await env.advance(10 * HOUR)
    assert not (await env.driver.due()).must_release
    assert await env.driver.release_due() == 0
    late = await env.enqueue()
    old = await enlist(env, code_version="old")
    await publish(env, "old")
    assert (await env.driver.due()).must_release
    assert await env.driver.release_due() == 1
    assert not (await env.driver.due()).must_release
    view = await env.describe(job_id)
    assert (view.state, view.counters) == (State.READY, Counters(attempt=0, claim_no=1))
    assert await order(env, new) == [late]
    assert await order(env, old) == [job_id]


async def test_work_released_for_its_code_waits_for_it_an_hour_too(env: DriverEnv) -> None:
    job_id, _ = await held_for(env, "old")
    await env.advance(SECOND)
    await enlist(env, code_version="old")
    await publish(env, "old")
    await env.driver.release_due()
    await env.advance(HAND_BACK - SECOND)
    assert await env.driver.release_due() == 0
    await env.advance(SECOND)
    assert await env.driver.release_due() == 1
    view = await env.describe(job_id)
    assert (view.state, view.state_reason) == (State.HELD, REASON)


async def test_held_work_waits_for_a_worker_that_serves_its_queue(env: DriverEnv) -> None:
    job_id, _ = await held_for(env, "old")
    await env.advance(SECOND)
    await enlist(env, code_version="old", queues=("other",))
    await publish(env, "old")
    assert not (await env.driver.due()).must_release
    assert await env.driver.release_due() == 0
    assert await state_of(env, job_id) is State.HELD
    await enlist(env, code_version="old")
    assert await env.driver.release_due() == 1
    assert await state_of(env, job_id) is State.READY


async def test_without_a_version_an_operator_decides(env: DriverEnv) -> None:
    job_id, _ = await held_for(env, None)
    await enlist(env, code_version="old")
    assert not (await env.driver.due()).must_release
    assert await env.driver.release_due() == 0
    assert await state_of(env, job_id) is State.HELD


async def test_a_batch_moves_so_many(env: DriverEnv) -> None:
    new = await enlist(env, code_version="new")
    for _ in range(3):
        await env.close_attempt((await env.running(new)).token, diverged())
    await env.advance(SECOND)
    old = await enlist(env, code_version="old")
    await publish(env, "old")
    assert [await env.driver.release_due(batch=2) for _ in range(3)] == [2, 1, 0]
    assert len(await env.claim(old)) == 3


@pytest.mark.parametrize("version", [None, "old"])
async def test_an_operator_s_release_is_for_everybody(env: DriverEnv, version: str | None) -> None:
    job_id, new = await held_for(env, version)
    later = await env.enqueue()
    await env.driver.release_held(job_id)
    view = await env.describe(job_id)
    assert (view.state, view.state_reason, view.counters) == (State.READY, None, Counters(attempt=0, claim_no=1))
    assert await order(env, new) == [job_id, later]


async def test_only_held_jobs_are_released(env: DriverEnv) -> None:
    worker = await enlist(env)
    running = await env.running(worker)
    await env.close_attempt((await env.running(worker)).token, Completed())
    ready = await env.enqueue()
    for job_id, state in ((running.token.job_id, State.RUNNING), (ready, State.READY)):
        with pytest.raises(JobStateConflict) as refused:
            await env.driver.release_held(job_id)
        assert refused.value.details["state"] == state
        assert await state_of(env, job_id) is state


async def test_an_absent_or_foreign_job_is_not_found(env: DriverEnv) -> None:
    held = await env.running(await enlist(env), tenant="acme")
    await env.close_attempt(held.token, diverged(None))
    for job_id, tenant in ((new_id(), None), (held.token.job_id, "other")):
        with pytest.raises(JobNotFound):
            await env.driver.release_held(job_id, tenant=tenant)
    await env.driver.release_held(held.token.job_id, tenant="acme")
    assert await state_of(env, held.token.job_id) is State.READY


# --- an operator retries what is held


async def held_with_a_run(env: DriverEnv) -> ClaimedJob:
    held = await env.running(await enlist(env), key="k")
    await record(env, held.token, "a", "b")
    await env.close_attempt(held.token, Held(reason="does not fit", version="old"))
    return held


async def test_a_held_job_does_not_go_on_as_it_is(env: DriverEnv) -> None:
    held = await held_with_a_run(env)
    before = await env.describe(held.token.job_id)
    with pytest.raises(JobStateConflict) as refused:
        await env.driver.retry(held.token.job_id)
    assert refused.value.details["state"] == State.HELD
    assert await env.describe(held.token.job_id) == before


@pytest.mark.parametrize(
    ("how", "kept"), [({"mode": RetryMode.FRESH}, []), ({"from_step": "b"}, ["a"])], ids=["fresh", "from_step"]
)
async def test_a_held_job_is_retried_fresh_or_from_a_step(env: DriverEnv, how: dict[str, Any], kept: list[str]) -> None:
    held = await held_with_a_run(env)
    first = await env.enqueue()
    await env.driver.retry(held.token.job_id, **how)
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.counters) == (State.READY, None, Counters(claim_no=1))
    assert await steps(env, held.token.job_id) == kept
    assert (await env.enqueue_again(key="k")).id == held.token.job_id
    claimed = await env.claim(held.token.worker_id)
    assert [one.token.job_id for one in claimed] == [first, held.token.job_id]


# --- a payload that the model refuses

REFUSED = Held(reason="the payload does not fit", error=ERROR, or_dead=True)


async def test_a_refused_payload_goes_to_the_newest_code_of_its_type(env: DriverEnv) -> None:
    old, new = await fleet(env)
    held = await env.running(old)
    await env.close_attempt(held.token, REFUSED)
    view = await env.describe(held.token.job_id)
    assert (view.state, view.counters) == (State.READY, Counters(attempt=0, claim_no=1))
    (row,) = await env.ledger(held.token.job_id)
    assert (row.outcome, row.cause, row.counted) == (OutcomeKind.HELD, "handed_back", False)
    assert await env.claim(old) == ()
    assert await order(env, new) == [held.token.job_id]


async def is_dead_at_once(env: DriverEnv, worker: WorkerId) -> None:
    held = await env.running(worker)
    await env.close_attempt(held.token, REFUSED)
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.error) == (State.DEAD, "terminal", ERROR)
    assert view.counters == Counters(attempt=1, claim_no=1)
    (row,) = await env.ledger(held.token.job_id)
    assert (row.outcome, row.cause, row.counted, row.error) == (OutcomeKind.DEAD_LETTERED, "error", True, ERROR)


async def test_the_newest_code_s_own_refusal_is_final(env: DriverEnv) -> None:
    _, new = await fleet(env)
    await is_dead_at_once(env, new)


async def test_a_refusal_is_final_where_nobody_has_newer_code(env: DriverEnv) -> None:
    await is_dead_at_once(env, await enlist(env))


async def test_a_refusal_is_final_where_the_newest_code_has_left(env: DriverEnv) -> None:
    old, new = await fleet(env)
    await env.driver.close_worker(new)
    await is_dead_at_once(env, old)


@pytest.mark.parametrize("how", ["time", "worker"])
async def test_a_refused_payload_that_nobody_takes_is_dead(env: DriverEnv, how: str) -> None:
    old, new = await fleet(env)
    held = await env.running(old)
    await env.close_attempt(held.token, REFUSED)
    if how == "time":
        await env.advance(HAND_BACK)
    else:
        await env.driver.close_worker(new)
    assert (await env.driver.due()).must_release
    assert await env.driver.release_due() == 1
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.error) == (State.DEAD, "terminal", ERROR)
    assert view.counters == Counters(attempt=0, claim_no=1)
    assert len(await env.ledger(held.token.job_id)) == 1


async def test_a_child_that_is_dead_of_it_wakes_its_parent(env: DriverEnv) -> None:
    old, new = await fleet(env)
    await publish(env, "new", CHILD)
    parent, child = await called(env, old)
    await env.close_attempt(child.token, REFUSED)
    assert await state_of(env, parent.token.job_id) is State.SUSPENDED
    await env.driver.close_worker(new)
    assert await env.driver.release_due() == 1
    assert await state_of(env, parent.token.job_id) is State.READY
    assert (await the_wait(env, parent.token.job_id)).child_state is State.DEAD


@every_fence
async def test_a_claim_that_is_gone_hands_nothing_back(env: DriverEnv, fence: Fence) -> None:
    await fleet(env)
    held = await env.running()
    stale = await fence(env, held)
    before = await env.driver.describe(held.token.job_id)
    for outcome in (diverged(), REFUSED):
        assert await env.settle(stale, outcome) is not SettleAnswer.SETTLED
    assert await env.driver.describe(held.token.job_id) == before
