"""Limited jobs in queues that are held back: pauses, places and depths are as they are for every other job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import QueueFull
from app.domain.explain import explain
from app.domain.job import JobId
from app.domain.limit import RATE
from app.domain.outcome import Completed
from app.domain.queue import QueueChange
from app.domain.reason import REASON_RULES, Explanation
from app.domain.state import State
from app.drivers.protocol import Wake
from tests.conformance.ears import hearing
from tests.conformance.gated import ALL, RATED, admit, admit_one, declare, ids, keyed, limited
from tests.support.drivers import NAME, QUEUE, DriverEnv, new_job

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
FACTS = {rule.code: rule.facts for rule in REASON_RULES}


async def why(env: DriverEnv, job_id: JobId) -> Explanation:
    situation = await env.driver.situation(job_id)
    assert situation is not None
    explained = explain(situation)
    assert explained.is_runnable is not any(reason.kind.blocks for reason in explained.reasons)
    for reason in explained.reasons:
        assert tuple(reason.facts) == FACTS[reason.code]
    return explained


async def codes(env: DriverEnv, job_id: JobId) -> list[str]:
    return [reason.code.value for reason in (await why(env, job_id)).reasons]


async def test_nothing_is_admitted_from_a_paused_queue_until_its_pause_is_over(env: DriverEnv) -> None:
    await declare(env)
    (job_id,) = await limited(env)
    worker = await env.register()
    await env.driver.pause_queue(QUEUE, by="ops", until=env.now() + MINUTE)
    assert await admit(env, worker) == ()
    await env.advance(MINUTE)
    worker = await env.register()
    assert ids(await admit(env, worker)) == [job_id]


async def test_plain_and_limited_jobs_share_the_places_of_their_queue(env: DriverEnv) -> None:
    await declare(env, 10)
    await env.driver.set_queue(QUEUE, QueueChange(concurrency=2))
    await limited(env, 3)
    await env.driver.enqueue_many([new_job() for _ in range(3)])
    worker = await env.register()
    (plain,) = await env.claim(worker, room=1)
    (held,) = await admit(env, worker)
    assert (plain.is_limited, plain.has_slots, held.is_limited, held.has_slots) == (True, False, True, True)
    assert await admit(env, worker) == ()
    assert await env.claim(worker) == ()
    async with hearing(env) as ears:
        await env.close_attempt(held.token, Completed())
        await ears.wait_for(Wake.READY)
    assert len(await admit(env, worker)) == 1
    await env.close_attempt(plain.token, Completed())
    assert len(await env.claim(worker)) == 1


async def test_a_queue_without_places_has_room_for_any_number(env: DriverEnv) -> None:
    await declare(env, 10)
    await limited(env, 3)
    admitted = await admit(env, await env.register())
    assert [job.is_limited for job in admitted] == [False] * 3


async def test_limited_jobs_count_for_the_depth_and_are_refused_by_it(env: DriverEnv) -> None:
    await declare(env)
    await env.driver.set_queue(QUEUE, QueueChange(max_depth=3))
    await limited(env, 2, key=None)
    await env.enqueue(key="a")
    assert (await env.driver.queue_facts(QUEUE)).depth == 3
    for job in (new_job(), new_job(limits=(keyed("x"),)), new_job(key="b", limits=(keyed("x"),))):
        with pytest.raises(QueueFull):
            await env.driver.enqueue(job)
    again = await env.driver.enqueue(new_job(key="a", limits=(keyed("x"),)))
    assert again.deduped
    assert await env.driver.enqueue_many([new_job(key="a"), new_job(key="a", limits=(keyed("x"),))])
    (one,) = await admit(env, await env.register())
    assert (await env.driver.queue_facts(QUEUE)).depth == 2
    (late,) = await limited(env, delay=MINUTE, limits=(keyed("x"),))
    assert (await env.driver.queue_facts(QUEUE)).depth == 3
    await env.close_attempt(one.token, Completed())
    assert (await env.describe(late)).state is State.DELAYED


async def test_a_full_limit_is_why_with_who_holds_it_and_how_many_are_before(env: DriverEnv) -> None:
    await declare(env)
    holder, second, third = await limited(env, 3)
    worker = await env.register(names=(NAME,))
    assert await codes(env, holder) == ["next"]
    held = await admit_one(env, worker)
    (reason, *_) = (await why(env, third)).reasons
    assert (reason.code.value, reason.facts) == (
        "slot",
        {"limit": "limit", "key": "", "n": 1, "held": 1, "holders": [str(holder)], "ahead": 1},
    )
    assert "outlast limits set" in str(reason.repair)
    assert await codes(env, second) == ["slot"]
    await env.close_attempt(held.token, Completed())
    assert await codes(env, second) == ["slot"]
    await env.driver.free_slots((held.token,))
    assert await codes(env, second) == ["next"]
    assert await codes(env, third) == ["ahead"]


async def test_a_tenant_is_told_of_its_own_holders_alone(env: DriverEnv) -> None:
    await declare(env, 2)
    await limited(env, tenant="other")
    (own, waits) = await limited(env, 2, tenant="acme")
    await admit(env, await env.register(), room=2)
    found = await env.driver.situation(waits, tenant="acme")
    assert found is not None
    (facts,) = found.limits
    assert (facts.held, facts.holders) == (2, (own,))
    shown = await env.driver.limits_of(waits)
    assert shown is not None
    assert len(shown.limits[0].holders) == 2


async def test_a_rate_that_is_used_up_is_why_and_says_until_when(env: DriverEnv) -> None:
    await declare(env, None, rate=(1, MINUTE))
    worker = await env.register(names=(NAME,))
    _, waits = await limited(env, 2, limits=(RATED,))
    await admit_one(env, worker)
    (reason, *_) = (await why(env, waits)).reasons
    assert (reason.code.value, reason.facts) == (
        RATE,
        {"key": "", "n": 1, "per_ms": 60_000, "next_at": env.now() + MINUTE, "ahead": 0},
    )
    await env.advance(MINUTE)
    assert (await why(env, waits)).is_runnable


async def test_what_holds_a_queue_back_is_said_before_what_holds_its_job(env: DriverEnv) -> None:
    await declare(env)
    _, waits = await limited(env, 2)
    await admit_one(env, await env.register(names=(NAME,)))
    await env.driver.set_queue(QUEUE, QueueChange(concurrency=1))
    await env.driver.pause_queue(QUEUE, by="ops")
    assert (await codes(env, waits))[:3] == ["queue_paused", "queue_at_limit", "slot"]


@pytest.mark.parametrize("held_back", ["paused", "full"])
async def test_a_queue_that_is_held_back_keeps_no_other_queues_jobs_in_the_gate(env: DriverEnv, held_back: str) -> None:
    """More of its jobs come first than one look takes in."""
    await declare(env, 1000)
    worker = await env.register()
    if held_back == "paused":
        await env.driver.pause_queue(QUEUE, by="ops")
    else:
        await env.driver.set_queue(QUEUE, QueueChange(concurrency=1))
        await limited(env)
        await admit_one(env, worker)
    await env.driver.enqueue_many([new_job(limits=(ALL,)) for _ in range(150)])
    (other,) = await limited(env, queue="mail")
    assert ids(await admit(env, worker, queues=[QUEUE, "mail"])) == [other]


async def test_the_foremost_of_all_queues_are_met_however_many_wait_in_one(env: DriverEnv) -> None:
    """More than one look takes in, of a queue whose jobs are older, and of less priority than the other's."""
    await declare(env, 1_000)
    await limited(env, 70, priority=6)
    urgent = await limited(env, 3, priority=4, queue="urgent")
    worker = await env.register(queues=(QUEUE, "urgent"))
    admitted = await admit(env, worker, queues=(QUEUE, "urgent"), room=3)
    assert [job.token.job_id for job in admitted] == urgent
