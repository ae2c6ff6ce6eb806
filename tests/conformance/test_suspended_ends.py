from __future__ import annotations

from typing import Any

import pytest

from app.domain.job import Counters
from app.domain.outcome import (
    Cancelled,
    CancelVerdict,
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Outcome,
    Retried,
    Snoozed,
)
from app.domain.snapshot import Expired
from app.domain.state import DeadReason, State
from app.drivers.protocol import PurgeQuery
from tests.conformance.runs import (
    HOUR,
    MINUTE,
    SECOND,
    a_sleep,
    a_step,
    an_event,
    emit,
    enlist,
    known,
    settle,
    state_of,
    steps,
    suspend,
    suspended,
    waits,
)
from tests.support.drivers import ERROR, NAME, QUEUE, DriverEnv

# --- what ends it


async def test_a_cancel_ends_a_suspended_job_and_its_waits(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep(), an_event("e", 1), key="k")
    assert await env.driver.cancel(held.token.job_id, reason="stop") is CancelVerdict.CANCELLED_WHILE_WAITING
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.waiting_on) == (State.CANCELLED, "stop", ())
    assert view.counters == Counters(attempt=0, claim_no=1)
    assert await waits(env, held.token.job_id) == []
    assert (await env.enqueue_again(key="k")).deduped is False
    assert (await emit(env)).matched == 0
    await env.advance(HOUR)
    assert await env.driver.wake() == 0


async def test_a_cancel_of_a_running_job_ends_its_waits(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep(delay=MINUTE), an_event("e", 1), worker=worker)
    await env.advance(MINUTE)
    await env.driver.wake()
    await env.claim_one(worker)
    assert await env.driver.cancel(held.token.job_id, reason="stop") is CancelVerdict.SIGNALLED
    assert await waits(env, held.token.job_id) == []
    assert await steps(env, held.token.job_id) == ["nap"]


async def test_a_deadline_ends_a_suspended_job(env: DriverEnv) -> None:
    held = await suspended(env, an_event(), deadline=HOUR)
    assert not (await env.driver.due()).must_expire
    await env.advance(HOUR)
    assert (await env.driver.due()).must_expire
    assert await env.driver.expire() == (
        Expired(job_id=held.token.job_id, name=NAME, queue=QUEUE, reason=DeadReason.DEADLINE),
    )
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.waiting_on) == (State.DEAD, "deadline", ())
    assert view.error is not None
    assert view.error.code == "JOB_TIMEOUT"
    assert await waits(env, held.token.job_id) == ["approval"]
    assert not (await env.driver.due()).must_expire


async def test_a_deadline_ends_a_held_job(env: DriverEnv) -> None:
    held = await env.running(deadline=HOUR)
    await env.close_attempt(held.token, Held(reason="does not fit"))
    await env.advance(HOUR)
    (expired,) = await env.driver.expire()
    assert (expired.job_id, expired.reason) == (held.token.job_id, DeadReason.DEADLINE)


async def test_a_job_that_was_suspended_has_started(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep(delay=MINUTE), worker=worker, max_queue_time=MINUTE)
    await env.advance(HOUR)
    assert not (await env.driver.due()).must_expire
    assert await env.driver.expire() == ()
    assert await env.driver.wake() == 1
    assert await env.driver.expire() == ()
    assert (await env.claim_one(worker)).token.job_id == held.token.job_id


async def test_a_resumed_job_finds_its_waits(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, an_event(), deadline=HOUR, worker=worker)
    await env.advance(HOUR)
    await env.driver.expire()
    await env.driver.retry(held.token.job_id)
    again = await env.claim_one(await enlist(env))
    assert await waits(env, held.token.job_id) == ["approval"]
    assert await suspend(env, again, known(an_event())) is State.SUSPENDED
    assert (await emit(env)).matched == 1
    assert await state_of(env, held.token.job_id) is State.READY


async def test_a_purge_takes_the_run_along(env: DriverEnv) -> None:
    held = await suspended(env, an_event(), a_sleep("nap", 1, delay=HOUR), deadline=MINUTE)
    await env.advance(MINUTE)
    await env.driver.expire()
    await env.advance(2 * MINUTE)
    assert await env.driver.purge(PurgeQuery(state=State.DEAD, older_than=MINUTE)) == 1
    found = await env.driver.history(held.token.job_id, held.run_id)
    assert (found.steps, found.waits) == ((), ())
    assert (await emit(env)).matched == 0
    await env.advance(HOUR)
    assert await env.driver.wake() == 0
    assert (await env.driver.due()).wake_in is None


# --- what an attempt's end does to the waits of its run

KEPT = ["approval", "nap"]
ENDS: list[tuple[Outcome, dict[str, Any], list[str]]] = [
    (Completed(), {}, []),
    (Cancelled(reason="not needed"), {}, []),
    (Retried(error=ERROR, delay=MINUTE), {}, KEPT),
    (Retried(error=ERROR, delay=MINUTE), {"forgets": ("approval",)}, ["nap"]),
    (DeadLettered(error=ERROR, reason=DeadReason.TERMINAL), {}, KEPT),
    (DeadLettered(error=ERROR, reason=DeadReason.TERMINAL), {"forgets": ("nap", "approval")}, []),
    (Interrupted(cause="drain"), {}, KEPT),
    (Interrupted(cause="drain", delay=MINUTE), {}, KEPT),
    (Snoozed(delay=MINUTE), {}, KEPT),
    (Held(reason="does not fit"), {}, KEPT),
    (Held(reason="does not fit", version="gone"), {}, KEPT),
]


@pytest.mark.parametrize(("outcome", "facts", "left"), ENDS, ids=repr)
async def test_an_end_drops_the_waits_it_names(
    env: DriverEnv, outcome: Outcome, facts: dict[str, Any], left: list[str]
) -> None:
    worker = await enlist(env)
    held = await suspended(env, an_event(number=0), a_sleep(number=1), a_sleep("short", 2, delay=SECOND), worker=worker)
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await settle(env, held, outcome, has_waits=True, **facts)
    assert await waits(env, held.token.job_id) == left
    assert await steps(env, held.token.job_id) == ["short"]


async def test_an_end_forgets_an_event_that_did_not_come_and_no_other_record(env: DriverEnv) -> None:
    worker = await enlist(env)
    await emit(env, "1")
    events = an_event("late", 0, delay=SECOND, key="none"), an_event("came", 1), a_sleep("short", 2, delay=SECOND)
    await suspended(env, events[0], events[2], worker=worker)
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(worker)
    await emit(env, "2")
    assert await suspend(env, held, events[1]) is State.READY
    held = await env.claim_one(worker)
    await env.driver.record_step(held.token, a_step("a", 3))
    assert sorted(await steps(env, held.token.job_id)) == ["a", "came", "late", "short"]
    dead = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
    await settle(env, held, dead, forgets=("late", "came", "short", "a"))
    assert sorted(await steps(env, held.token.job_id)) == ["a", "came", "short"]
    await env.driver.retry(held.token.job_id)
    again = await env.claim_one(worker)
    assert await suspend(env, again, an_event("late", 0, delay=SECOND, key="none")) is State.SUSPENDED


async def test_an_end_forgets_no_event_of_another_run(env: DriverEnv) -> None:
    worker, late = await enlist(env), an_event("late", 0, delay=SECOND, key="none")
    runs = [await suspended(env, late, worker=worker) for _ in range(2)]
    await env.advance(SECOND)
    await env.driver.wake()
    held = {job.token.job_id: job for job in await env.claim(worker)}
    first, other = (held[run.token.job_id] for run in runs)
    await settle(env, first, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL), forgets=("late",))
    assert await steps(env, first.token.job_id) == []
    assert await steps(env, other.token.job_id) == ["late"]


async def test_waits_of_others_are_left(env: DriverEnv) -> None:
    worker = await enlist(env)
    other = await suspended(env, an_event(), worker=worker)
    held = await suspended(env, an_event(), a_sleep(number=1, delay=SECOND), worker=worker)
    await env.advance(SECOND)
    await env.driver.wake()
    await settle(env, await env.claim_one(worker), Completed(), has_waits=True)
    assert await waits(env, other.token.job_id) == ["approval"]
    assert await waits(env, held.token.job_id) == []
