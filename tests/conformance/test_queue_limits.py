"""How many jobs of a queue may run in the whole fleet: whoever claims, however claims end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.domain.errors import PreconditionFailed
from app.domain.outcome import (
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
    Suspended,
)
from app.domain.queue import QueueChange, version_of_queue
from app.domain.state import DeadReason, State
from app.drivers.protocol import ClaimRequest, QueueShare, Wake
from tests.conformance.ears import hearing
from tests.conformance.runs import a_sleep
from tests.support.drivers import ERROR, NAME, DriverEnv, new_job

TWO = QueueChange(concurrency=2)


async def fill(env: DriverEnv, queue: str, count: int) -> None:
    await env.driver.enqueue_many([new_job(queue=queue) for _ in range(count)])


async def test_no_more_of_a_queue_run_than_may_whoever_claims(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    await fill(env, "mail", 5)
    one, other = await env.register(), await env.register()
    assert len(await env.claim(one, queues=("mail",), room=1)) == 1
    assert len(await env.claim(other, queues=("mail",))) == 1
    assert await env.claim(one, queues=("mail",)) == ()
    facts = await env.driver.queue_facts("mail")
    assert (facts.running, facts.concurrency, facts.is_at_limit) == (2, 2, True)


async def test_a_limit_that_is_taken_away_leaves_a_pause_alone(env: DriverEnv) -> None:
    await env.driver.pause_queue("mail", by="ops")
    await env.driver.set_queue("mail", TWO)
    await env.driver.set_queue("mail", QueueChange(concurrency=None))
    facts = await env.driver.queue_facts("mail")
    assert facts.pause is not None
    assert (facts.pause.by, facts.concurrency) == ("ops", None)


async def test_a_claim_says_which_of_its_jobs_have_places(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    await env.enqueue(queue="mail")
    await env.enqueue(queue="other")
    claimed = await env.claim(await env.register(), queues=("mail", "other"))
    assert {job.queue: job.is_limited for job in claimed} == {"mail": True, "other": False}


async def test_a_job_that_was_claimed_before_the_limit_counts(env: DriverEnv) -> None:
    worker = await env.register()
    await fill(env, "mail", 4)
    assert len(await env.claim(worker, queues=("mail",), room=3)) == 3
    await env.driver.set_queue("mail", TWO)
    assert await env.claim(worker, queues=("mail",)) == ()


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(),
        Retried(error=ERROR, delay=timedelta(hours=1)),
        Snoozed(delay=timedelta(hours=1)),
        DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
        Held(reason="does not fit"),
        Suspended(waits=(a_sleep(),)),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_however_an_attempt_is_settled_its_place_is_free(env: DriverEnv, outcome: Completed) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 2)
    worker = await env.register()
    (first,) = await env.claim(worker, queues=("mail",))
    async with hearing(env) as ears:
        await env.close_attempt(first.token, outcome)
        await ears.wait_for(Wake.READY)
    (second,) = await env.claim(worker, queues=("mail",))
    assert second.token.job_id != first.token.job_id


async def test_a_settle_and_a_claim_in_one_call_fill_the_place_that_the_settle_frees(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 2)
    worker = await env.register()
    (first,) = await env.claim(worker, queues=("mail",))
    request = ClaimRequest(
        worker_id=worker, shares=(QueueShare(queue="mail", room=5),), names=frozenset({NAME}), room=5
    )
    answers, claimed = await env.driver.settle_and_claim([Settlement(first.token, Completed())], request)
    assert answers == (SettleAnswer.SETTLED,)
    assert len(claimed) == 1


async def test_a_settle_of_another_queue_takes_no_place_that_is_taken(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 3)
    await fill(env, "other", 3)
    worker, beside = await env.register(), await env.register()
    (first,) = await env.claim(worker, queues=("other",), room=1)
    assert len(await env.claim(beside, queues=("mail",))) == 1
    shares = tuple(QueueShare(queue=queue, room=5) for queue in ("mail", "other"))
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=5)
    _, claimed = await env.driver.settle_and_claim([Settlement(first.token, Completed())], request)
    assert [job.queue for job in claimed] == ["other", "other"]


async def test_a_fused_claim_takes_of_a_limited_queue_what_is_free_and_no_more(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    await fill(env, "mail", 5)
    await fill(env, "other", 2)
    worker = await env.register()
    (first,) = await env.claim(worker, queues=("other",), room=1)
    shares = tuple(QueueShare(queue=queue, room=9) for queue in ("mail", "other"))
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=9)
    _, claimed = await env.driver.settle_and_claim([Settlement(first.token, Completed())], request)
    assert [job.queue for job in claimed] == ["mail", "mail", "other"]


async def test_limited_and_other_queues_are_claimed_in_one_order(env: DriverEnv) -> None:
    """A queue with a limit comes in its turn: neither before the others, nor when they have had enough."""
    await env.driver.set_queue("mail", QueueChange(concurrency=3))
    for queue in ("other", "mail", "other", "mail", "other", "mail", "mail", "other"):
        await env.enqueue(queue=queue)
    await env.enqueue(queue="mail", priority=0)
    worker = await env.register()
    claimed = await env.claim(worker, queues=("mail", "other"), room=4)
    assert [job.queue for job in claimed] == ["mail", "other", "mail", "other"]
    assert [job.priority for job in claimed] == [0, 5, 5, 5]
    claimed = await env.claim(worker, queues=("other", "mail"), room=4)
    assert [job.queue for job in claimed] == ["mail", "other", "other"]


async def test_several_limited_queues_keep_their_own_limits(env: DriverEnv) -> None:
    for number, queue in enumerate(("a", "b", "c"), 1):
        await env.driver.set_queue(queue, QueueChange(concurrency=number))
        await fill(env, queue, 5)
    claimed = await env.claim(await env.register(), queues=("c", "a", "b"), room=9)
    assert sorted(job.queue for job in claimed) == ["a", "b", "b", "c", "c", "c"]
    assert [job.queue for job in claimed] == ["a", "b", "b", "c", "c", "c"]


async def test_a_limit_can_be_raised_lowered_and_taken_away(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 6)
    assert len(await env.claim(worker, queues=("mail",))) == 1
    async with hearing(env) as ears:
        await env.driver.set_queue("mail", QueueChange(concurrency=3))
        await ears.wait_for(Wake.READY)
    assert len(await env.claim(worker, queues=("mail",))) == 2
    await env.driver.set_queue("mail", QueueChange(concurrency=2))
    assert await env.claim(worker, queues=("mail",)) == ()
    await env.driver.set_queue("mail", QueueChange(concurrency=None))
    assert len(await env.claim(worker, queues=("mail",))) == 3
    assert (await env.driver.queue_facts("mail")).concurrency is None


async def test_a_cancelled_job_has_no_place(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 2)
    worker = await env.register()
    (first,) = await env.claim(worker, queues=("mail",))
    await env.driver.cancel(first.token.job_id, reason="changed their mind")
    assert len(await env.claim(worker, queues=("mail",))) == 1
    assert await env.settle(first.token, Completed()) is SettleAnswer.CANCELLED


async def test_a_zombies_claim_counts_until_it_is_taken_over(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 2)
    (first,) = await env.claim(await env.register(), queues=("mail",))
    await env.vanish()
    worker = await env.register()
    assert await env.claim(worker, queues=("mail",)) == ()
    assert len(await env.driver.reap()) == 1
    (again,) = await env.claim(worker, queues=("mail",))
    assert again.token.job_id == first.token.job_id
    assert await env.settle(first.token, Completed()) is SettleAnswer.REAPED
    assert await env.claim(worker, queues=("mail",)) == ()


async def test_a_claim_that_is_handed_back_has_no_place(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 2)
    worker = await env.register()
    (first,) = await env.claim(worker, queues=("mail",))
    assert await env.driver.release([first.token], cause="drain") == 1
    (again,) = await env.claim(worker, queues=("mail",))
    assert again.token.job_id == first.token.job_id
    await env.close_attempt(again.token, Interrupted(cause="drain"))
    assert len(await env.claim(worker, queues=("mail",))) == 1


async def test_other_queues_are_as_before(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "other", 5)
    assert len(await env.claim(await env.register(), queues=("other",))) == 5
    facts = await env.driver.queue_facts("other")
    assert (facts.running, facts.concurrency, facts.is_at_limit) == (5, None, False)


async def test_a_paused_queue_with_a_limit_is_paused(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    await fill(env, "mail", 3)
    await env.driver.pause_queue("mail", by="ops")
    worker = await env.register()
    assert await env.claim(worker, queues=("mail",)) == ()
    await env.driver.resume_queue("mail")
    assert len(await env.claim(worker, queues=("mail",))) == 2
    (queue,) = await env.driver.queues()
    assert (queue.concurrency, queue.paused_at) == (2, None)


async def test_limits_are_shown(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=2, max_depth=7))
    await env.driver.set_queue("mail", QueueChange(max_depth=8))
    (queue,) = await env.driver.queues()
    assert (queue.name, queue.concurrency, queue.max_depth) == ("mail", 2, 8)
    await env.driver.set_queue("mail", QueueChange(concurrency=None))
    (queue,) = await env.driver.queues()
    assert (queue.concurrency, queue.max_depth) == (None, 8)
    await env.driver.set_queue("mail", QueueChange(max_depth=None))
    assert await env.driver.queues() == ()


async def test_facts_of_a_queue_that_nobody_uses(env: DriverEnv) -> None:
    facts = await env.driver.queue_facts("never.seen")
    assert (facts.at, facts.pause, facts.running, facts.depth) == (env.now(), None, 0, 0)
    assert (facts.concurrency, facts.max_depth, facts.is_at_limit, facts.is_full) == (None, None, False, False)


async def test_a_job_waits_for_a_place_as_ready(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(env, "mail", 1)
    worker = await env.register()
    await env.claim(worker, queues=("mail",))
    job_id = await env.enqueue(queue="mail")
    assert (await env.describe(job_id)).state is State.READY


async def test_of_two_changes_of_what_was_seen_one_wins(env: DriverEnv) -> None:
    """Also where the queue had no setting before, and no row."""
    for start in (None, 4):
        await env.driver.set_queue("mail", QueueChange(concurrency=start))
        version = version_of_queue(None, start, None)
        changes = [
            env.driver.set_queue("mail", QueueChange(concurrency=number), versions=frozenset({version}))
            for number in (7, 8, 9)
        ]
        came = await asyncio.gather(*changes, return_exceptions=True)
        refused = [error for error in came if error is not None]
        assert len(refused) == 2
        assert all(isinstance(error, PreconditionFailed) for error in refused)
        assert (await env.driver.queue_facts("mail")).concurrency in {7, 8, 9}
