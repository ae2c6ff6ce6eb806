from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import QueuesEmpty
from app.domain.job import Counters, JobId, RunId, WorkerId
from app.domain.outcome import Interrupted, Retried
from app.domain.state import State
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.support.drivers import ERROR, LEASE, NAME, QUEUE, DriverEnv, new_job

SECOND = timedelta(seconds=1)


async def test_a_claim_hands_over_the_whole_job(env: DriverEnv) -> None:
    job = new_job(
        payload='{"a": 1}',
        priority=3,
        tenant="acme",
        max_attempts=4,
        max_crashes=2,
        key="k",
        timeout=timedelta(seconds=9),
        deadline=timedelta(minutes=2),
        enqueued_by="ci",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tags=("a",),
        meta="{}",
    )
    await env.driver.enqueue(job)
    created_at = env.now()
    await env.advance(timedelta(seconds=5))
    worker = await env.register()
    held = await env.claim_one(worker)
    assert (held.token.job_id, held.token.claim_no, held.token.worker_id) == (job.id, 1, worker)
    assert (held.run_id, held.name, held.queue, held.priority) == (RunId(job.id), job.name, job.queue, 3)
    assert (held.tenant, held.payload, held.key) == ("acme", '{"a": 1}', "k")
    assert held.counters == Counters(attempt=1, claim_no=1)
    assert (held.max_attempts, held.max_crashes) == (4, 2)
    assert (held.created_at, held.run_at, held.claimed_at) == (created_at, None, env.now())
    assert (held.timeout, held.deadline_in) == (timedelta(seconds=9), timedelta(seconds=115))
    assert (held.enqueued_by, held.traceparent) == ("ci", job.traceparent)
    assert (held.tags, held.meta, held.parent_id) == (("a",), "{}", None)


async def test_a_claimed_job_is_shown_with_its_holder(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    await env.advance(timedelta(seconds=3))
    view = await env.describe(held.token.job_id)
    assert (view.state, view.started_at) == (State.RUNNING, held.claimed_at)
    assert view.counters == Counters(attempt=1, claim_no=1)
    assert view.claim is not None
    assert (view.claim.worker_id, view.claim.claimed_at) == (worker, held.claimed_at)
    assert (view.claim.lease_until, view.claim.heartbeat_age_ms) == (held.claimed_at + LEASE, 3000)


async def test_claims_follow_priority_then_the_order_of_becoming_ready(env: DriverEnv) -> None:
    order = [5, 9, 0, 5, 0]
    ids = [await env.enqueue(priority=priority) for priority in order]
    claimed = await env.claim(await env.register())
    assert [held.token.job_id for held in claimed] == [ids[2], ids[4], ids[0], ids[3], ids[1]]


async def test_order_is_by_becoming_ready_and_not_by_id(env: DriverEnv) -> None:
    early_id, late_id = new_job(), new_job()
    await env.driver.enqueue(late_id)
    await env.driver.enqueue(early_id)
    claimed = await env.claim(await env.register())
    assert [held.token.job_id for held in claimed] == [late_id.id, early_id.id]


async def test_a_batch_is_claimed_in_its_own_order(env: DriverEnv) -> None:
    jobs = [new_job() for _ in range(50)]
    await env.driver.enqueue_many(jobs)
    claimed = await env.claim(await env.register(), room=50)
    assert [held.token.job_id for held in claimed] == [job.id for job in jobs]


async def test_resumed_work_goes_before_new_work_of_its_priority_only(env: DriverEnv) -> None:
    worker = await env.register()
    resumed = (await env.running(worker)).token
    fresh = await env.enqueue()
    urgent = await env.enqueue(priority=4)
    await env.close_attempt(resumed, Interrupted(cause="drain"))
    claimed = await env.claim(worker)
    assert [held.token.job_id for held in claimed] == [urgent, resumed.job_id, fresh]


async def test_a_retry_goes_behind_what_is_ready(env: DriverEnv) -> None:
    worker = await env.register()
    failed = (await env.running(worker)).token
    await env.close_attempt(failed, Retried(error=ERROR, delay=SECOND))
    fresh = await env.enqueue()
    await env.advance(2 * SECOND)
    assert await env.driver.promote() == 1
    claimed = await env.claim(worker)
    assert [held.token.job_id for held in claimed] == [fresh, failed.job_id]


async def test_several_queues_are_one_order_by_priority(env: DriverEnv) -> None:
    low = await env.enqueue(queue="a", priority=7)
    middle = await env.enqueue(queue="b", priority=5)
    high = await env.enqueue(queue="c", priority=1)
    claimed = await env.claim(await env.register(), queues=("a", "b", "c"))
    assert [held.token.job_id for held in claimed] == [high, middle, low]


async def test_room_goes_to_the_highest_priority_of_all_queues(env: DriverEnv) -> None:
    for _ in range(5):
        await env.enqueue(queue="a", priority=6)
    urgent = [await env.enqueue(queue="b", priority=2) for _ in range(2)]
    claimed = await env.claim(await env.register(), queues=("a", "b"), room=3)
    assert [held.token.job_id for held in claimed][:2] == urgent
    assert [held.queue for held in claimed] == ["b", "b", "a"]


async def test_room_and_shares_bound_a_claim(env: DriverEnv) -> None:
    worker = await env.register()
    for queue in ("a", "b"):
        await env.driver.enqueue_many([new_job(queue=queue) for _ in range(6)])

    async def claim(room: int, **shares: int) -> list[str]:
        request = ClaimRequest(
            worker_id=worker,
            shares=tuple(QueueShare(queue=queue, room=most) for queue, most in shares.items()),
            names=frozenset({NAME}),
            room=room,
        )
        return sorted(held.queue for held in await env.driver.claim(request))

    assert await claim(10, a=1, b=2) == ["a", "b", "b"]
    assert len(await claim(2, a=5, b=5)) == 2
    assert await claim(0, a=5) == []
    assert await claim(3, a=0, b=1) == ["b"]


async def test_a_claim_without_queues_is_refused(env: DriverEnv) -> None:
    request = ClaimRequest(worker_id=await env.register(), shares=(), names=frozenset({NAME}), room=1)
    with pytest.raises(QueuesEmpty):
        await env.driver.claim(request)


async def test_other_queues_are_left_alone(env: DriverEnv) -> None:
    job_id = await env.enqueue(queue="mail")
    assert await env.claim(await env.register(), queues=("default",)) == ()
    assert (await env.describe(job_id)).state is State.READY


async def test_unknown_names_stay_ready_and_do_not_hide_others(env: DriverEnv) -> None:
    worker = await env.register()
    unknown = [await env.enqueue("new.job", priority=0) for _ in range(30)]
    known = await env.enqueue("old.job")
    claimed = await env.claim(worker, names=("old.job", "never.seen"), room=5)
    assert [held.token.job_id for held in claimed] == [known]
    assert {(await env.describe(job_id)).state for job_id in unknown} == {State.READY}
    assert len(await env.claim(worker, names=("new.job",), room=30)) == 30


async def test_a_worker_that_knows_no_name_claims_nothing(env: DriverEnv) -> None:
    await env.enqueue()
    assert await env.claim(await env.register(), names=()) == ()


async def test_nothing_is_claimed_from_a_paused_queue(env: DriverEnv) -> None:
    worker = await env.register()
    paused = await env.enqueue(queue="a", priority=0)
    open_ = await env.enqueue(queue="b")
    await env.driver.pause_queue("a", by="ops")
    claimed = await env.claim(worker, queues=("a", "b"))
    assert [held.token.job_id for held in claimed] == [open_]
    assert (await env.describe(paused)).state is State.READY
    await env.driver.resume_queue("a")
    assert [held.token.job_id for held in await env.claim(worker, queues=("a", "b"))] == [paused]


async def test_nothing_is_claimed_for_a_worker_whose_lease_has_passed(env: DriverEnv) -> None:
    worker = await env.register()
    await env.enqueue()
    await env.advance(LEASE)
    assert await env.claim(worker) == ()
    await env.driver.reap()
    assert await env.claim(worker) == ()


async def test_nothing_is_claimed_for_a_closed_or_unknown_worker(env: DriverEnv) -> None:
    worker = await env.register()
    await env.enqueue()
    await env.driver.close_worker(worker)
    assert await env.claim(worker) == ()
    assert await env.claim(WorkerId(worker + 1000)) == ()


async def test_claim_numbers_grow_and_fences_never_repeat(env: DriverEnv) -> None:
    first, second = await env.register(), await env.register()
    token = (await env.running(first)).token
    tokens = [token]
    for worker in (first, second, first):
        assert await env.driver.release((tokens[-1],), cause="test") == 1
        tokens.append((await env.claim_one(worker)).token)
    assert [token.claim_no for token in tokens] == [1, 2, 3, 4]
    assert len({token.fence for token in tokens}) == 4


async def test_a_claim_past_the_deadline_shows_no_time_left(env: DriverEnv) -> None:
    await env.enqueue(deadline=SECOND)
    await env.advance(3 * SECOND)
    held = await env.claim_one(await env.register())
    assert held.deadline_in == -2 * SECOND


async def test_a_job_one_short_of_its_crash_budget_must_run_alone(env: DriverEnv) -> None:
    await env.enqueue(max_crashes=2)
    assert (await env.claim_one(await env.register())).must_run_alone is False
    await env.vanish()
    await env.driver.reap()
    held = await env.claim_one(await env.register())
    assert held.must_run_alone is True


@pytest.mark.parametrize("asked", ["delay", "run_at"])
async def test_a_claim_tells_when_the_job_was_to_run(env: DriverEnv, asked: str) -> None:
    due = env.now() + 5 * SECOND
    await (env.enqueue(delay=5 * SECOND) if asked == "delay" else env.enqueue(run_at=due))
    await env.advance(8 * SECOND)
    await env.driver.promote()
    held = await env.claim_one(await env.register())
    assert (held.run_at, held.claimed_at - due) == (due, 3 * SECOND)


@pytest.mark.parametrize("queues", [(QUEUE,), (QUEUE, "b")], ids=["one queue", "two"])
async def test_jobs_that_must_run_alone_are_left_ready_when_they_cannot(
    env: DriverEnv, queues: tuple[str, ...]
) -> None:
    crashed = await env.enqueue(max_crashes=2)
    await env.claim_one(await env.register())
    await env.vanish()
    await env.driver.reap()
    fresh = await env.enqueue(max_crashes=1, priority=0)
    others = [await env.enqueue(max_crashes=2) for _ in range(3)]
    worker = await env.register()
    shares = tuple(QueueShare(queue=queue, room=3) for queue in queues)
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=3, alone_ok=False)
    assert [held.token.job_id for held in await env.driver.claim(request)] == others
    assert await env.driver.claim(request) == ()
    held = await env.driver.claim(replace(request, alone_ok=True))
    assert [(one.token.job_id, one.must_run_alone) for one in held] == [(fresh, True), (crashed, True)]


async def test_concurrent_claims_never_share_a_job(env: DriverEnv) -> None:
    jobs = [new_job() for _ in range(60)]
    await env.driver.enqueue_many(jobs)
    workers = [await env.register() for _ in range(4)]
    seen: list[JobId] = []
    while len(seen) < len(jobs):
        rounds = await asyncio.gather(*(env.claim(worker, room=7) for worker in workers))
        fresh = [held.token.job_id for claimed in rounds for held in claimed]
        assert fresh
        seen += fresh
    assert sorted(seen) == sorted(job.id for job in jobs)
