from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.job import Counters
from app.domain.outcome import Completed, Held, Interrupted, Retried, Snoozed
from app.domain.snapshot import Expired
from app.domain.state import DeadReason, State
from app.drivers.protocol import PurgeQuery
from app.drivers.reading import ListQuery
from tests.conformance.endings import (
    STATE_AFTER,
    Ending,
    cancelled_while_running,
    completed,
    crashed_too_often,
    dead_lettered,
    every_ending,
)
from tests.support.drivers import ERROR, NAME, QUEUE, DriverEnv, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


# --- promote


async def test_nothing_is_promoted_before_its_time(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=MINUTE)
    await env.advance(MINUTE - SECOND)
    assert await env.driver.promote() == 0
    await env.advance(SECOND)
    assert await env.driver.promote() == 1
    view = await env.describe(job_id)
    assert (view.state, view.state_reason) == (State.READY, None)
    assert await env.driver.promote() == 0


async def test_promoted_work_is_ready_in_the_order_of_its_times(env: DriverEnv) -> None:
    later = await env.enqueue(delay=3 * MINUTE)
    soon = await env.enqueue(delay=MINUTE)
    middle = await env.enqueue(delay=2 * MINUTE)
    await env.advance(5 * MINUTE)
    assert await env.driver.promote() == 3
    claimed = await env.claim(await env.register())
    assert [held.token.job_id for held in claimed] == [soon, middle, later]


async def test_promote_takes_the_longest_due_first_in_batches(env: DriverEnv) -> None:
    await env.enqueue(delay=2 * MINUTE)
    first = await env.enqueue(delay=MINUTE)
    await env.advance(5 * MINUTE)
    assert await env.driver.promote(batch=1) == 1
    assert (await env.describe(first)).state is State.READY
    assert await env.driver.promote(batch=1) == 1
    assert await env.driver.promote(batch=1) == 0


async def test_scheduled_work_and_retries_are_new_but_woken_and_interrupted_work_is_resumed(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=3_600_000)
    retried, snoozed, interrupted = [(await env.running(worker)).token for _ in range(3)]
    scheduled = await env.enqueue(delay=SECOND)
    await env.close_attempt(retried, Retried(error=ERROR, delay=2 * SECOND))
    await env.close_attempt(snoozed, Snoozed(delay=3 * SECOND))
    await env.close_attempt(interrupted, Interrupted(cause="drain", delay=4 * SECOND))
    await env.advance(10 * SECOND)
    assert await env.driver.promote() == 4
    claimed = await env.claim(worker)
    assert [held.token.job_id for held in claimed] == [
        snoozed.job_id,
        interrupted.job_id,
        scheduled,
        retried.job_id,
    ]


async def test_promoted_work_keeps_its_counters(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=3_600_000)
    token = (await env.running(worker)).token
    await env.close_attempt(token, Retried(error=ERROR, delay=SECOND))
    await env.advance(2 * SECOND)
    await env.driver.promote()
    view = await env.describe(token.job_id)
    assert (view.counters, view.error) == (Counters(attempt=1, claim_no=1), ERROR)
    assert (await env.claim_one(worker)).counters == Counters(attempt=2, claim_no=2)


# --- expire


@pytest.mark.parametrize("delay", [None, DAY], ids=["ready", "delayed"])
@pytest.mark.parametrize(
    ("limit", "reason"), [("max_queue_time", DeadReason.EXPIRED), ("deadline", DeadReason.DEADLINE)]
)
async def test_a_waiting_job_dies_at_its_limit_and_frees_its_key(
    env: DriverEnv, delay: timedelta | None, limit: str, reason: DeadReason
) -> None:
    limits: dict[str, Any] = {limit: MINUTE}
    job_id = await env.enqueue(key="k", delay=delay, **limits)
    await env.advance(MINUTE - SECOND)
    assert await env.driver.expire() == ()
    await env.advance(SECOND)
    assert await env.driver.expire() == (Expired(job_id=job_id, name=NAME, queue=QUEUE, reason=reason),)
    view = await env.describe(job_id)
    assert (view.state, view.state_reason, view.finished_at) == (State.DEAD, reason, env.now())
    assert (view.counters, view.last_outcome) == (Counters(), None)
    assert view.error is not None
    assert view.error.code == ("JOB_EXPIRED" if reason is DeadReason.EXPIRED else "JOB_TIMEOUT")
    (listed,) = (await env.driver.list(ListQuery())).items
    assert listed.error == view.error
    assert await env.ledger(job_id) == ()
    assert (await env.enqueue_again(key="k")).deduped is False
    assert await env.driver.expire() == ()


async def test_the_earlier_of_two_limits_is_the_reason(env: DriverEnv) -> None:
    expired = await env.enqueue(max_queue_time=MINUTE, deadline=2 * MINUTE)
    past = await env.enqueue(max_queue_time=2 * MINUTE, deadline=MINUTE)
    await env.advance(DAY)
    assert len(await env.driver.expire()) == 2
    assert (await env.describe(expired)).state_reason == DeadReason.EXPIRED
    assert (await env.describe(past)).state_reason == DeadReason.DEADLINE


@pytest.mark.parametrize("verb", ["release", "reconcile"])
@pytest.mark.parametrize("late", [False, True], ids=["in time", "after the limit"])
async def test_a_claim_that_was_handed_back_is_no_start(env: DriverEnv, verb: str, late: bool) -> None:
    worker = await env.register(lease_ms=86_400_000)
    token = (await env.running(worker, max_queue_time=MINUTE)).token
    if late:
        await env.advance(2 * MINUTE)
        assert await env.driver.expire() == ()
    if verb == "release":
        assert await env.driver.release((token,), cause="test") == 1
    else:
        assert await env.driver.reconcile(worker, ()) == 1
    await env.advance(2 * MINUTE)
    assert [one.job_id for one in await env.driver.expire()] == [token.job_id]
    assert (await env.describe(token.job_id)).state_reason == DeadReason.EXPIRED


@pytest.mark.parametrize("late", [False, True], ids=["in time", "after the limit"])
@pytest.mark.parametrize("promoted", [False, True], ids=["waiting", "ready"])
@pytest.mark.parametrize(
    "outcome",
    [Retried(error=ERROR, delay=SECOND), Snoozed(delay=SECOND), Interrupted(cause="drain", delay=SECOND)],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_job_that_has_started_does_not_expire(
    env: DriverEnv, outcome: Retried | Snoozed | Interrupted, promoted: bool, late: bool
) -> None:
    worker = await env.register(lease_ms=86_400_000)
    token = (await env.running(worker, max_queue_time=MINUTE)).token
    if late:
        await env.advance(2 * MINUTE)
        assert await env.driver.expire() == ()
    await env.close_attempt(token, outcome)
    await env.advance(2 * MINUTE)
    if promoted:
        await env.driver.promote()
        again = (await env.claim_one(worker)).token
        await env.driver.release((again,), cause="test")
    assert await env.driver.expire() == ()
    assert (await env.describe(token.job_id)).state is (State.READY if promoted else State.DELAYED)


async def test_a_job_that_crashed_does_not_expire(env: DriverEnv) -> None:
    token = (await env.running(max_queue_time=MINUTE)).token
    await env.vanish()
    await env.driver.reap()
    await env.advance(2 * MINUTE)
    assert await env.driver.expire() == ()
    assert (await env.describe(token.job_id)).state is State.READY


@pytest.mark.parametrize(
    "outcome",
    [Retried(error=ERROR, delay=DAY), Snoozed(delay=DAY), Interrupted(cause="drain"), Held(reason="does not fit")],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_deadline_ends_work_that_waits_again_and_keeps_its_history(
    env: DriverEnv, outcome: Retried | Snoozed | Interrupted | Held
) -> None:
    token = (await env.running(deadline=MINUTE)).token
    await env.close_attempt(token, outcome)
    before = await env.describe(token.job_id)
    await env.advance(2 * MINUTE)
    assert len(await env.driver.expire()) == 1
    view = await env.describe(token.job_id)
    assert (view.state, view.state_reason) == (State.DEAD, DeadReason.DEADLINE)
    assert view.counters == before.counters
    assert view.error is not None
    assert view.error.code == (ERROR.code if before.error else "JOB_TIMEOUT"), "the last attempt's, where it left one"
    assert (view.started_at, view.claim) == (None, None)


async def test_a_running_job_is_left_to_its_worker(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=86_400_000)
    token = (await env.running(worker, deadline=MINUTE, max_queue_time=MINUTE)).token
    await env.advance(2 * MINUTE)
    assert await env.driver.expire() == ()
    await env.close_attempt(token, Interrupted(cause="drain"))
    assert len(await env.driver.expire()) == 1
    assert (await env.describe(token.job_id)).state_reason == DeadReason.DEADLINE


async def test_expire_works_in_batches(env: DriverEnv) -> None:
    await env.driver.enqueue_many([new_job(max_queue_time=MINUTE) for _ in range(5)])
    await env.advance(2 * MINUTE)
    assert [len(await env.driver.expire(batch=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_fewer_than_a_batch_have_expired_only_when_no_more_are_left(env: DriverEnv) -> None:
    """Limits of jobs that have ended, and second limits of one job, take no place in a batch."""
    limits: dict[str, Any] = {"max_queue_time": MINUTE, "deadline": MINUTE}
    for job in (ended := [new_job(**limits) for _ in range(4)]):
        await env.driver.enqueue(job)
    for job in ended:
        await env.driver.cancel(job.id, reason="test")
    await env.driver.enqueue_many([new_job(**limits) for _ in range(5)])
    await env.advance(2 * MINUTE)
    assert [len(await env.driver.expire(batch=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_what_expired_is_named_by_id(env: DriverEnv) -> None:
    jobs = [new_job(max_queue_time=limit * SECOND) for limit in (3, 1, 2)]
    await env.driver.enqueue_many(jobs)
    await env.advance(MINUTE)
    assert [one.job_id for one in await env.driver.expire()] == sorted(job.id for job in jobs)


@every_ending
async def test_an_ended_job_does_not_end_again(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {"deadline": 2 * SECOND})
    before = await env.describe(job_id)
    await env.advance(2 * MINUTE)
    assert await env.driver.expire() == ()
    assert await env.describe(job_id) == before


# --- purge


@every_ending
async def test_old_ended_jobs_are_deleted_with_their_ledger(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {})
    query = PurgeQuery(state=STATE_AFTER[ending], older_than=DAY)
    await env.advance(DAY)
    assert await env.driver.purge(query) == 0
    await env.advance(SECOND)
    assert await env.driver.purge(query) == 1
    assert await env.driver.describe(job_id) is None
    assert await env.ledger(job_id) == ()
    assert sum((await env.driver.stats()).by_state.values()) == 0


async def test_purge_takes_one_state_only(env: DriverEnv) -> None:
    kept = {await completed(env, {}), await dead_lettered(env, {}), await cancelled_while_running(env, {})}
    await env.advance(DAY)
    for state in (State.DONE, State.DEAD, State.CANCELLED):
        assert await env.driver.purge(PurgeQuery(state=state, older_than=MINUTE)) == 1
        left = {job_id for job_id in kept if await env.driver.describe(job_id) is not None}
        assert len(left) == len(kept) - 1
        kept = left


async def test_live_jobs_are_never_purged(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=10 * 86_400_000)
    token = (await env.running(worker)).token
    await env.enqueue()
    await env.enqueue(delay=100 * DAY)
    await env.advance(DAY)
    for state in (State.DONE, State.DEAD, State.CANCELLED):
        assert await env.driver.purge(PurgeQuery(state=state, older_than=timedelta())) == 0
    await env.close_attempt(token, Completed())


async def test_purge_works_in_batches(env: DriverEnv) -> None:
    jobs = [new_job() for _ in range(5)]
    await env.driver.enqueue_many(jobs)
    for job in jobs:
        await env.driver.cancel(job.id, reason="stop")
    await env.advance(DAY)
    query = PurgeQuery(state=State.CANCELLED, older_than=MINUTE, batch=2)
    assert [await env.driver.purge(query) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_purged_job_is_absent_everywhere(env: DriverEnv) -> None:
    job_id = await crashed_too_often(env, {})
    await env.advance(DAY)
    await env.driver.purge(PurgeQuery(state=State.DEAD, older_than=MINUTE))
    assert await env.driver.dead_letters() == ()
    assert await env.driver.finished_among((job_id,)) == {job_id}
