"""Fair queues: tenants share what a queue does by their weights, and nobody saves up turns or loses any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from app.domain.explain import explain
from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.outcome import Completed
from app.domain.queue import QueueChange
from app.domain.reason import REASON_RULES, Reason, ReasonCode
from app.domain.state import State
from app.drivers.protocol import Wake
from tests.conformance.ears import hearing
from tests.conformance.gated import admit, declare, ids, limited, looked
from tests.support.drivers import NAME, QUEUE, DriverEnv, new_id, new_job

FAIR = QueueChange(is_fair=True)
FACTS = {rule.code: rule.facts for rule in REASON_RULES}


async def of(env: DriverEnv, tenant: str, count: int = 1, **fields: Any) -> list[JobId]:
    """Enqueue jobs of a tenant, in their order."""
    jobs = [new_job(tenant=tenant, **fields) for _ in range(count)]
    return [answer.id for answer in await env.driver.enqueue_many(jobs)]


async def tenants(env: DriverEnv, worker: WorkerId, room: int, **where: Any) -> str:
    """Let jobs in, and name their tenants, one letter for each."""
    return "".join(job.tenant for job in await admit(env, worker, room=room, **where))


async def one_by_one(env: DriverEnv, worker: WorkerId, count: int) -> str:
    return "".join([await tenants(env, worker, 1) for _ in range(count)])


async def fair(env: DriverEnv, **weights: int) -> WorkerId:
    await env.driver.set_queue(QUEUE, QueueChange(is_fair=True, weights=weights))
    return await env.register()


async def test_tenants_take_turns_however_much_one_has_waiting(env: DriverEnv) -> None:
    worker = await fair(env)
    first = await of(env, "a", 6)
    second = await of(env, "b", 2)
    admitted = await admit(env, worker, room=5)
    assert ids(admitted) == [first[0], second[0], first[1], second[1], first[2]]
    assert {job.queue for job in admitted} == {QUEUE}
    assert {(job.token.claim_no, job.counters.attempt, job.priority, job.has_slots) for job in admitted} == {
        (1, 1, 5, False)
    }
    assert await tenants(env, worker, 9) == "aaa"


async def test_no_claim_sees_a_job_of_a_fair_queue(env: DriverEnv) -> None:
    worker = await fair(env)
    (job_id,) = await of(env, "a")
    await of(env, "b", queue="other")
    assert await env.claim(worker) == ()
    assert len(await env.claim(worker, queues=(QUEUE, "other"))) == 1
    view = await env.describe(job_id)
    assert (view.state, view.state_reason) == (State.READY, None)
    assert ids(await admit(env, worker)) == [job_id]


async def test_one_that_comes_late_is_next_and_one_that_was_away_has_saved_up_nothing(env: DriverEnv) -> None:
    worker = await fair(env)
    await of(env, "a", 30)
    await of(env, "b", 1)
    assert await one_by_one(env, worker, 12) == "ab" + "a" * 10
    await of(env, "b", 5)
    assert await one_by_one(env, worker, 8) == "babababa"


async def test_weights_say_how_many_starts_each_gets(env: DriverEnv) -> None:
    worker = await fair(env, a=1, b=3)
    await of(env, "a", 40)
    await of(env, "b", 40)
    counted = Counter(await one_by_one(env, worker, 40))
    assert counted == {"a": 10, "b": 30}
    (queue,) = await env.driver.queues()
    assert (queue.is_fair, queue.weights) == (True, {"a": 1, "b": 3})
    await env.driver.set_queue(QUEUE, QueueChange(weights={"a": None, "b": 1}))
    (queue,) = await env.driver.queues()
    assert (queue.is_fair, queue.weights) == (True, {"b": 1})
    assert Counter(await one_by_one(env, worker, 10)) == {"a": 5, "b": 5}


async def test_a_batch_shares_its_places_by_weight(env: DriverEnv) -> None:
    worker = await fair(env, b=3)
    await of(env, "a", 20)
    await of(env, "b", 20)
    assert Counter(await tenants(env, worker, 8)) == {"a": 2, "b": 6}
    assert Counter(await tenants(env, worker, 8)) == {"a": 2, "b": 6}


async def test_a_large_batch_is_filled_though_each_line_is_read_by_its_share(env: DriverEnv) -> None:
    worker = await fair(env)
    await of(env, "a", 150)
    for tenant in "bcd":
        await of(env, tenant, 1)
    answer = await looked(env, worker, room=100)
    assert Counter(job.tenant for job in answer.jobs) == {"a": 97, "b": 1, "c": 1, "d": 1}
    assert answer.is_full
    rest = await looked(env, worker, room=100)
    assert (len(rest.jobs), rest.is_full) == (53, False)


async def test_within_a_tenant_priority_and_age_hold_and_between_tenants_they_do_not(env: DriverEnv) -> None:
    worker = await fair(env)
    (late,) = await of(env, "a", priority=7)
    (soon,) = await of(env, "a", priority=1)
    (other,) = await of(env, "b", priority=9)
    order = [(await admit(env, worker, room=1))[0].token.job_id for _ in range(3)]
    assert order == [soon, other, late]


async def test_of_two_queues_the_places_of_a_fair_one_are_those_of_its_jobs(env: DriverEnv) -> None:
    worker = await fair(env)
    await env.driver.set_queue("other", FAIR)
    first, second = await of(env, "a", 2)
    (between,) = await of(env, "x", queue="other")
    (last,) = await of(env, "b")
    assert ids(await admit(env, worker, queues=(QUEUE, "other"))) == [first, last, between, second]


async def test_jobs_that_are_ready_when_a_queue_becomes_fair_are_lined_up(env: DriverEnv) -> None:
    await of(env, "a", 5)
    await of(env, "b", 1)
    async with hearing(env) as ears:
        worker = await fair(env)
        await ears.wait_for(Wake.READY)
    due = await env.driver.due()
    assert (due.is_gated, due.must_line_up) == (True, False)
    assert await env.claim(worker) == ()
    assert await tenants(env, worker, 2) == "ab"
    assert (await env.driver.queue_facts(QUEUE)).is_fair
    assert (await env.driver.stats()).by_state[State.READY] == 4


async def test_a_job_that_comes_back_waits_for_its_turn_again(env: DriverEnv) -> None:
    await of(env, "a", 1)
    worker = await env.register()
    before = await env.claim_one(worker)
    await fair(env)
    await of(env, "a", 2)
    await of(env, "b", 2)
    (held,) = await admit(env, worker, room=1)
    assert held.tenant == "a"
    await env.driver.release([held.token], cause="drain")
    await env.driver.release([before.token], cause="drain")
    await env.driver.line_up()  # what had begun before the queue was fair is out of line where the store cannot know
    assert not (await env.driver.due()).must_line_up
    assert await env.claim(worker) == ()
    assert sorted(await one_by_one(env, worker, 5)) == ["a", "a", "a", "b", "b"]


async def test_what_a_full_queue_takes_in_waits_for_its_turn_from_the_first_job_on(env: DriverEnv) -> None:
    await env.driver.set_queue(QUEUE, QueueChange(max_depth=9))
    await of(env, "a")  # who enqueues knows from now on that the queue has a maximum
    worker = await fair(env)
    await of(env, "a")
    await of(env, "b", key="k")
    assert not (await env.driver.due()).must_line_up
    assert await env.claim(worker) == ()
    assert await tenants(env, worker, 9) == "aba"


async def test_delayed_jobs_and_an_operators_retry_wait_for_their_turn(env: DriverEnv) -> None:
    worker = await fair(env)
    (job_id,) = await of(env, "a", max_attempts=1)
    await of(env, "b", 3)
    await env.driver.cancel(job_id, reason="changed my mind")
    await env.driver.retry(job_id)
    assert not (await env.driver.due()).must_line_up
    assert await env.claim(worker) == ()
    assert await tenants(env, worker, 2) == "ba"


async def test_a_fork_waits_for_its_turn(env: DriverEnv) -> None:
    worker = await fair(env)
    (job_id,) = await of(env, "a")
    (held,) = await admit(env, worker)
    await env.close_attempt(held.token, Completed())
    await of(env, "b", 1)
    await env.driver.fork(job_id, new_id=new_id())
    assert not (await env.driver.due()).must_line_up
    assert await env.claim(worker) == ()
    assert await tenants(env, worker, 9) == "ba"


async def test_a_queue_that_is_fair_no_more_lets_its_line_go_and_takes_the_rest_as_before(env: DriverEnv) -> None:
    worker = await fair(env)
    await of(env, "a", 2)
    await of(env, "b", 1)
    await env.driver.set_queue(QUEUE, QueueChange(is_fair=False))
    (late,) = await of(env, "c")
    assert ids(await env.claim(worker)) == [late]
    assert await tenants(env, worker, 9) == "aba"
    due = await env.driver.due()
    assert (due.is_gated, due.must_line_up) == (False, False)
    assert [queue.is_fair for queue in await env.driver.queues()] == [False]
    assert not (await env.driver.queue_facts(QUEUE)).is_fair


async def test_what_stood_in_line_comes_back_to_the_gate_when_its_queue_is_fair_no_more(env: DriverEnv) -> None:
    worker = await fair(env)
    (*_, last) = await of(env, "a", 3)
    (held, other) = await admit(env, worker, room=2)
    await env.driver.set_queue(QUEUE, QueueChange(is_fair=False))
    await env.driver.release([held.token, other.token], cause="drain")
    assert await env.claim(worker) == ()
    await env.driver.cancel(last, reason="begins anew")
    assert ids(await admit(env, worker)) == [held.token.job_id, other.token.job_id]
    await env.driver.retry(last)
    assert ids(await env.claim(worker)) == [last]


async def test_a_fair_queue_is_paused_limited_and_counted_like_any_other(env: DriverEnv) -> None:
    await env.driver.set_queue(QUEUE, QueueChange(concurrency=3, is_fair=True))
    worker = await env.register()
    await of(env, "a", 4)
    await of(env, "b", 4)
    await env.driver.pause_queue(QUEUE, by="ops")
    assert await admit(env, worker) == ()
    await env.driver.resume_queue(QUEUE)
    held = await admit(env, worker)
    assert (Counter(job.tenant for job in held), {job.is_limited for job in held}) == ({"a": 2, "b": 1}, {True})
    assert await admit(env, worker) == ()
    await env.close_attempt(held[0].token, Completed())
    assert await tenants(env, worker, 9) == "b"
    facts = await env.driver.queue_facts(QUEUE)
    assert (facts.running, facts.depth, facts.is_at_limit) == (3, 4, True)


async def test_limited_jobs_of_a_fair_queue_take_their_slots_in_turns(env: DriverEnv) -> None:
    await declare(env, 2)
    worker = await fair(env)
    await limited(env, 4, tenant="a")
    await limited(env, 2, tenant="b")
    held = await admit(env, worker)
    assert [job.tenant for job in held] == ["a", "b"]
    assert await admit(env, worker) == ()
    assert await _next(env, worker, held) == "a"


async def _next(env: DriverEnv, worker: WorkerId, held: Sequence[ClaimedJob]) -> str:
    await env.close_attempt(held[0].token, Completed())
    await env.driver.free_slots([held[0].token])
    return await tenants(env, worker, 9)


async def test_a_worker_takes_no_job_whose_type_it_does_not_know(env: DriverEnv) -> None:
    worker = await fair(env)
    await of(env, "a", 2, name="other.job")
    (job_id,) = await of(env, "a")
    await of(env, "b", 1, name="other.job")
    assert ids(await admit(env, worker)) == [job_id]
    assert len(await admit(env, worker, names=(NAME, "other.job"))) == 3


async def test_more_tenants_than_a_look_meets_are_all_served(env: DriverEnv) -> None:
    worker = await fair(env)
    await env.driver.enqueue_many([new_job(tenant=f"t{number:03}") for number in range(450) for _ in range(2)])
    seen: Counter[str] = Counter()
    for _ in range(45):
        seen.update(job.tenant for job in await admit(env, worker, room=20))
    assert len(seen) == 450
    assert set(seen.values()) == {2}
    assert (await looked(env, worker, room=20)).jobs == ()


async def test_fair_and_limited_jobs_are_let_in_by_one_look(env: DriverEnv) -> None:
    await declare(env, 9)
    worker = await fair(env)
    (of_fair,) = await of(env, "a")
    (plain,) = await limited(env, queue="other")
    assert ids(await admit(env, worker, queues=(QUEUE, "other"))) == [of_fair, plain]


async def why(env: DriverEnv, job_id: JobId) -> Reason:
    """Give the reason of a job's turn, with the facts that it is to have."""
    situation = await env.driver.situation(job_id)
    assert situation is not None
    explained = explain(situation)
    assert explained.is_runnable
    (reason,) = (one for one in explained.reasons if one.code in {ReasonCode.TURN, ReasonCode.AHEAD, ReasonCode.NEXT})
    assert tuple(reason.facts) == FACTS[reason.code]
    return reason


async def test_who_asks_hears_whose_turn_a_job_waits_for(env: DriverEnv) -> None:
    worker = await fair(env, b=2)
    first = await of(env, "a", 3)
    second = await of(env, "b", 4)
    assert (await why(env, first[0])).code is ReasonCode.NEXT
    # In turns: a b b, then again; of two at one time the older begins.
    places = {first[1]: (1, 3), second[0]: (0, 1), second[1]: (1, 2), second[2]: (2, 4), first[2]: (2, 6)}
    for job_id, (own, count) in places.items():
        facts = (await why(env, job_id)).facts
        assert (facts["own_ahead"], facts["count"], facts["tenants"], facts["capped"]) == (own, count, 2, False)
    reason = await why(env, second[1])
    assert reason.text == (
        "it waits its turn: tenant b (weight 2) takes turns with 1 other in the queue 'default'; 2 jobs begin before"
        " it, 1 of its own tenant"
    )
    assert "--weight b=N" in (reason.repair or "")
    order = [*await admit(env, worker)]
    assert [ids(order).index(job_id) for job_id in places] == [count for _, count in places.values()]


async def test_turns_say_the_same_once_some_have_begun(env: DriverEnv) -> None:
    worker = await fair(env, a=3)
    await of(env, "a", 9)
    await admit(env, worker, room=4)
    jobs = [*await of(env, "b", 3), *await of(env, "a", 3), *await of(env, "c", 2)]
    told = {}
    for job_id in jobs:
        reason = await why(env, job_id)
        told[job_id] = reason.facts.get("count", 0)
    order = ids(await admit(env, worker, room=50))
    assert told == {job_id: order.index(job_id) for job_id in jobs}
