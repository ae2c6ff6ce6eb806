"""How many ready and delayed jobs a queue takes in: whatever enqueues them, and what is never refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import JobDuplicate, QueueFull
from app.domain.outcome import Completed, DeadLettered, Interrupted, Retried, Suspended
from app.domain.queue import QueueChange
from app.domain.schedule import Declaration, OccurrenceOutcome, Overlap, Plan, Planned
from app.domain.state import DeadReason, State
from app.drivers.schedules import schedules_of
from tests.conformance.runs import a_call
from tests.support.drivers import ERROR, DriverEnv, new_id, new_job

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
TWO = QueueChange(max_depth=2)


async def depth(env: DriverEnv, queue: str = "mail") -> int:
    (found,) = [one for one in await env.driver.queues() if one.name == queue]
    return found.depth[State.READY] + found.depth[State.DELAYED]


async def test_ready_and_delayed_jobs_count_and_the_next_is_refused(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    await env.enqueue(queue="mail")
    await env.enqueue(queue="mail", delay=HOUR)
    for fields in ({}, {"delay": HOUR}, {"key": "k"}, {"run_at": env.now() - HOUR}):
        with pytest.raises(QueueFull) as refused:
            await env.enqueue(queue="mail", **fields)
        assert (refused.value.details["queue"], refused.value.details["limit"]) == ("mail", 2)
        assert "outlast queues set mail --max-depth" in refused.value.fix
    assert await depth(env) == 2
    facts = await env.driver.queue_facts("mail")
    assert (facts.depth, facts.max_depth, facts.is_full) == (2, 2, True)


async def test_jobs_of_other_queues_do_not_count(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    for _ in range(2):
        await env.enqueue(queue="other")
        await env.enqueue(queue="other", delay=HOUR)
    await env.enqueue(queue="mail")
    await env.enqueue(queue="mail", delay=HOUR)
    assert await depth(env) == 2


async def test_a_job_that_is_claimed_or_cancelled_makes_room(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    first, _ = await env.enqueue(queue="mail"), await env.enqueue(queue="mail", delay=HOUR)
    assert len(await env.claim(await env.register(), queues=("mail",))) == 1
    second = await env.enqueue(queue="mail")
    with pytest.raises(QueueFull):
        await env.enqueue(queue="mail")
    await env.driver.cancel(second, reason="changed their mind")
    await env.enqueue(queue="mail")
    assert first != second


@pytest.mark.parametrize("is_fair", [False, True])
async def test_a_batch_over_several_full_queues_is_counted_for_each(env: DriverEnv, is_fair: bool) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=2, is_fair=is_fair))
    await env.enqueue(queue="mail")  # who enqueues knows of this maximum from now on, and of no other
    await env.driver.set_queue("other", QueueChange(max_depth=1))
    batch = [new_job(queue="mail"), new_job(queue="other", key="k"), new_job(queue="other")]
    with pytest.raises(QueueFull) as refused:
        await env.driver.enqueue_many(batch)
    assert {"queue": "other", "limit": 1, "index": 2}.items() <= refused.value.details.items()
    assert await depth(env) == 1
    await env.driver.enqueue_many(batch[:2])
    assert (await depth(env), await depth(env, "other")) == (2, 1)


async def test_a_batch_goes_in_whole_or_not_at_all(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=3))
    await env.enqueue(queue="mail")
    batch = [new_job(queue="other"), *(new_job(queue="mail", key=f"k{number}") for number in range(3))]
    with pytest.raises(QueueFull) as refused:
        await env.driver.enqueue_many(batch)
    assert refused.value.details["index"] == 3
    assert await depth(env) == 1
    assert await env.driver.describe(batch[0].id) is None
    await env.driver.enqueue_many(batch[:3])
    assert await depth(env) == 3
    with pytest.raises(QueueFull) as refused:
        await env.driver.enqueue_many([new_job(queue="other"), new_job(queue="mail")])
    assert refused.value.details["index"] == 1


async def test_other_queues_go_on(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=0))
    with pytest.raises(QueueFull):
        await env.enqueue(queue="mail")
    for _ in range(3):
        await env.enqueue(queue="other")
        await env.enqueue(queue="other", key=str(new_id()))
    assert await depth(env, "other") == 6


async def test_a_key_that_is_held_leads_to_its_job_however_full_the_queue(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    holder = await env.enqueue(queue="mail", key="order:1")
    again = await env.enqueue_again(queue="mail", key="order:1")
    assert (again.id, again.deduped) == (holder, True)
    with pytest.raises(JobDuplicate):
        await env.enqueue_again(queue="mail", key="order:1", on_conflict="error")
    with pytest.raises(QueueFull):
        await env.enqueue(queue="mail", key="order:2")


async def test_a_batch_of_known_and_new_jobs_needs_room_for_the_new(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", TWO)
    holder = await env.enqueue(queue="mail", key="order:1")
    new = new_job(queue="mail", key="order:2")
    answers = await env.driver.enqueue_many(
        [new_job(queue="mail", key="order:1"), new, new_job(queue="mail", key="order:2")]
    )
    assert [(answer.id, answer.deduped) for answer in answers] == [(holder, True), (new.id, False), (new.id, True)]
    assert await depth(env) == 2


async def test_repeating_an_id_is_safe_however_full_the_queue(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    job = new_job(queue="mail")
    assert await env.driver.enqueue(job) == await env.driver.enqueue(job)
    assert await env.driver.enqueue_many([job]) == (await env.driver.enqueue(job),)
    assert await depth(env) == 1


async def test_a_source_that_is_known_leads_to_its_job_however_full_the_queue(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    source = new_id()
    first = await env.enqueue(queue="mail", source_id=source)
    again = await env.enqueue_again(queue="mail", source_id=source)
    assert (again.id, again.deduped) == (first, True)


async def test_what_was_taken_in_before_is_never_refused(env: DriverEnv) -> None:
    """Retries, hand-backs and an operator's retry put a job back into a queue that is full by now."""
    worker = await env.register()
    failed, cut, dead = [await env.running(worker, queue="mail") for _ in range(3)]
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    await env.enqueue(queue="mail")
    await env.close_attempt(failed.token, Retried(error=ERROR, delay=HOUR))
    await env.close_attempt(cut.token, Interrupted(cause="drain"))
    await env.close_attempt(dead.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    await env.driver.retry(dead.token.job_id)
    await env.driver.fork(dead.token.job_id, new_id=new_id())
    assert await depth(env) == 5
    await env.advance(HOUR)
    assert await env.driver.promote() == 1
    with pytest.raises(QueueFull):
        await env.enqueue(queue="mail")


async def test_a_run_calls_its_child_into_a_full_queue(env: DriverEnv) -> None:
    """The run was taken in, and waits for its child: refusing that would hold up the run for good."""
    await env.driver.set_queue("mail", QueueChange(max_depth=0))
    child = new_job(queue="mail")
    parent = await env.running()
    await env.close_attempt(parent.token, Suspended(waits=(a_call(child=child),)))
    assert (await env.describe(child.id)).state is State.READY


async def test_a_maximum_can_be_raised_lowered_and_taken_away(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    await env.enqueue(queue="mail")
    with pytest.raises(QueueFull):
        await env.enqueue(queue="mail")
    await env.driver.set_queue("mail", QueueChange(max_depth=2))
    await env.enqueue(queue="mail")
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    with pytest.raises(QueueFull):
        await env.enqueue(queue="mail")
    await env.driver.set_queue("mail", QueueChange(max_depth=None))
    await env.enqueue(queue="mail")
    assert await depth(env) == 3


async def test_a_finished_job_does_not_count(env: DriverEnv) -> None:
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    job = await env.running(queue="mail")
    await env.close_attempt(job.token, Completed())
    await env.enqueue(queue="mail")


async def test_an_occurrence_that_comes_due_for_a_full_queue_is_skipped_and_says_why(env: DriverEnv) -> None:
    store = schedules_of(env.driver)
    assert store is not None
    await env.driver.set_queue("mail", QueueChange(max_depth=1))
    declared = Declaration(name="nightly", code_version="1", cron="* * * * *", tz="UTC", document="{}")
    await store.declare([declared])
    at = env.now()
    planned = tuple(Planned(at=at + number * MINUTE, job=new_job(queue="mail")) for number in range(2))
    plan = Plan(name="nightly", digest=declared.digest, until=at + MINUTE, planned=planned, overlap=Overlap.ALLOW)
    decided = await store.decide(plan)
    assert decided is not None
    assert [one.outcome for one in decided] == [OccurrenceOutcome.FIRED, OccurrenceOutcome.SKIPPED]
    assert (decided[1].why or "").startswith("QUEUE_FULL: ")
    with pytest.raises(QueueFull):
        await store.fire("nightly", new_job(queue="mail"), by="ops")
    assert await depth(env) == 1
