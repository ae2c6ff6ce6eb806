from __future__ import annotations

from datetime import timedelta

from app.domain.outcome import Completed, DeadLettered, ErrorInfo, Held, Retried, Snoozed, Suspended
from app.domain.state import DeadReason, State
from tests.conformance.endings import STATE_AFTER, cancelled_before_start
from tests.conformance.runs import a_sleep
from tests.support.drivers import DriverEnv, new_job

MINUTE = timedelta(minutes=1)


async def test_an_empty_store_counts_nothing(env: DriverEnv) -> None:
    stats = await env.driver.stats()
    assert set(stats.by_state.values()) <= {0}
    assert stats.queues == ()
    assert await env.driver.queues() == ()


async def test_each_job_is_in_exactly_one_bucket(env: DriverEnv) -> None:
    for ending in STATE_AFTER:
        await ending(env, {"queue": "ended"})
    worker = await env.register()
    held = (await env.running(worker, queue="live")).token
    await env.close_attempt(held, Held(reason="does not fit"))
    held = (await env.running(worker, queue="live")).token
    await env.close_attempt(held, Suspended(waits=(a_sleep(),)))
    await env.running(worker, queue="live")
    await env.driver.enqueue_many([new_job(queue="live") for _ in range(3)])
    await env.driver.enqueue_many([new_job(queue="live", delay=MINUTE) for _ in range(2)])
    stats = await env.driver.stats()
    assert stats.by_state == {
        State.READY: 3,
        State.DELAYED: 2,
        State.RUNNING: 1,
        State.SUSPENDED: 1,
        State.HELD: 1,
        State.DONE: 1,
        State.DEAD: 5,
        State.CANCELLED: 5,
    }
    assert [queue.name for queue in stats.queues] == ["ended", "live"]
    for state in State:
        assert sum(queue.depth[state] for queue in stats.queues) == stats.by_state[state]
    assert stats.queues == await env.driver.queues()


async def test_queues_are_in_code_point_order(env: DriverEnv) -> None:
    names = ["b", "a.c", "a-b", "ab", "a_b", "a:b", "a"]
    for name in names:
        await env.enqueue(queue=name)
    assert [queue.name for queue in await env.driver.queues()] == sorted(names)


async def test_the_age_of_the_oldest_ready_job_is_shown(env: DriverEnv) -> None:
    await env.enqueue(queue="a")
    await env.advance(MINUTE)
    await env.enqueue(queue="a")
    await env.enqueue(queue="b", delay=MINUTE)
    await env.enqueue(queue="c")
    await env.advance(timedelta(seconds=30))
    ages = {queue.name: queue.oldest_ready_seconds for queue in await env.driver.queues()}
    assert ages == {"a": 90.0, "b": None, "c": 30.0}
    claimed = await env.claim(await env.register(), queues=("a",), room=1)
    assert len(claimed) == 1
    ages = {queue.name: queue.oldest_ready_seconds for queue in await env.driver.queues()}
    assert ages["a"] == 30.0


async def test_a_delayed_job_is_as_old_as_its_time(env: DriverEnv) -> None:
    await env.enqueue(delay=MINUTE)
    await env.advance(MINUTE)
    await env.driver.promote()
    await env.advance(timedelta(seconds=5))
    (queue,) = await env.driver.queues()
    assert queue.oldest_ready_seconds == 5.0


async def test_a_job_that_came_back_is_as_old_as_its_return(env: DriverEnv) -> None:
    worker = await env.register()
    retried, snoozed, revived = [(await env.running(worker, queue=queue)).token for queue in ("a", "b", "c")]
    await env.close_attempt(retried, Retried(error=ErrorInfo(type="E", message="m"), delay=10 * MINUTE))
    await env.close_attempt(snoozed, Snoozed(delay=10 * MINUTE))
    await env.close_attempt(revived, DeadLettered(error=ErrorInfo(type="E", message="m"), reason=DeadReason.TERMINAL))
    await env.advance(10 * MINUTE)
    await env.driver.promote()
    await env.driver.retry(revived.job_id)
    await env.advance(timedelta(seconds=7))
    assert [queue.oldest_ready_seconds for queue in await env.driver.queues()] == [7.0, 7.0, 7.0]


# --- pause and resume


async def test_a_pause_is_shown_with_who_and_why(env: DriverEnv) -> None:
    await env.driver.pause_queue("mail", by="ops@acme", reason="provider is down")
    (queue,) = await env.driver.queues()
    assert (queue.name, queue.paused_at, queue.paused_by) == ("mail", env.now(), "ops@acme")
    assert (queue.pause_reason, queue.oldest_ready_seconds) == ("provider is down", None)
    assert set(queue.depth.values()) <= {0}


async def test_pausing_twice_keeps_the_first_pause(env: DriverEnv) -> None:
    await env.driver.pause_queue("mail", by="first")
    paused_at = env.now()
    await env.advance(MINUTE)
    await env.driver.pause_queue("mail", by="second", reason="again")
    (queue,) = await env.driver.queues()
    assert (queue.paused_at, queue.paused_by, queue.pause_reason) == (paused_at, "first", None)


async def test_a_resumed_queue_is_like_any_other(env: DriverEnv) -> None:
    await env.enqueue(queue="mail")
    await env.driver.resume_queue("mail")
    await env.driver.pause_queue("mail", by="ops", reason="x")
    await env.driver.resume_queue("mail")
    (queue,) = await env.driver.queues()
    assert (queue.paused_at, queue.paused_by, queue.pause_reason) == (None, None, None)
    await env.driver.pause_queue("mail", by="again")
    (queue,) = await env.driver.queues()
    assert (queue.paused_by, queue.pause_reason) == ("again", None)


async def test_a_queue_without_jobs_or_pause_is_not_shown(env: DriverEnv) -> None:
    await env.driver.pause_queue("mail", by="ops")
    await env.driver.resume_queue("mail")
    await env.driver.resume_queue("never.seen")
    assert await env.driver.queues() == ()


async def test_running_jobs_go_on_and_producers_may_go_on_while_a_queue_is_paused(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.driver.pause_queue("default", by="ops")
    assert (await env.renew(worker, (token,))).revoked == ()
    await env.close_attempt(token, Completed())
    await env.enqueue()
    await cancelled_before_start(env, {})
