from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.job import Counters
from app.domain.outcome import (
    Completed,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    SettleAnswer,
    Settlement,
    Suspended,
)
from app.domain.state import State
from app.domain.step import NewWait, StepKind, WaitView
from app.drivers.protocol import ClaimRequest, QueueShare
from app.drivers.reading import ListQuery
from tests.conformance.fences import Fence, every_fence
from tests.conformance.runs import (
    EVENT,
    HOUR,
    KEY,
    MINUTE,
    SECOND,
    a_call,
    a_child,
    a_sleep,
    an_event,
    at,
    emit,
    enlist,
    history,
    known,
    record,
    state_of,
    steps,
    suspend,
    suspended,
    the_wait,
    waits,
)
from tests.support.drivers import ERROR, NAME, QUEUE, DriverEnv, new_job

# --- what a suspended job looks like


async def test_a_suspended_job_waits_uncounted(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep())
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.last_outcome) == (State.SUSPENDED, "sleep", OutcomeKind.SUSPENDED)
    assert (view.claim, view.started_at, view.finished_at, view.error) == (None, None, None, None)
    assert view.counters == Counters(attempt=0, claim_no=1)
    assert await env.ledger(held.token.job_id) == ()


async def test_the_books_stay_as_they_were(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await env.close_attempt(held.token, Interrupted(cause="drain"))
    held = await env.claim_one(worker)
    await env.close_attempt(held.token, Retried(error=ERROR, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.promote()
    rows = await env.ledger(held.token.job_id)
    held = await env.claim_one(worker)
    await suspend(env, held, a_sleep())
    view = await env.describe(held.token.job_id)
    assert view.counters == Counters(attempt=1, claim_no=3, interrupts=1)
    assert view.error == ERROR
    assert await env.ledger(held.token.job_id) == rows


async def test_a_wait_is_shown_as_it_began(env: DriverEnv) -> None:
    worker = await enlist(env, code_version="2.1.0")
    wait = an_event("approval", 4, place=at(4, "1.0"), delay=HOUR)
    held = await suspended(env, wait, worker=worker)
    expected = WaitView(
        name="approval",
        kind=StepKind.EVENT,
        place=at(4, "1.0"),
        began_at=env.now(),
        code_version="2.1.0",
        due_at=env.now() + HOUR,
        event=EVENT,
        key=KEY,
    )
    assert (await env.describe(held.token.job_id)).waiting_on == (expected,)
    assert (await history(env, held.token.job_id)).waits == (expected,)
    assert not expected.has_failed


@pytest.mark.parametrize("wait", [a_sleep(), an_event()], ids=lambda wait: wait.kind)
async def test_the_reason_is_the_kind_of_the_first_wait(env: DriverEnv, wait: NewWait) -> None:
    held = await suspended(env, wait, a_sleep("other", 1))
    assert (await env.describe(held.token.job_id)).state_reason == wait.kind.value


async def test_a_call_is_a_reason_too(env: DriverEnv) -> None:
    held = await env.running()
    await suspend(env, held, a_call(a_child(held)))
    assert (await env.describe(held.token.job_id)).state_reason == "call"


async def test_an_event_without_a_timeout_has_no_end(env: DriverEnv) -> None:
    held = await suspended(env, an_event())
    assert (await the_wait(env, held.token.job_id)).due_at is None


async def test_an_end_may_be_an_instant(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep(until=env.now() + MINUTE))
    assert (await the_wait(env, held.token.job_id)).due_at == env.now() + MINUTE


async def test_a_suspended_job_is_in_one_bucket(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep(), queue="mail")
    stats = await env.driver.stats()
    assert {state: count for state, count in stats.by_state.items() if count} == {State.SUSPENDED: 1}
    (queue,) = stats.queues
    assert (queue.name, queue.depth[State.SUSPENDED], queue.oldest_ready_seconds) == ("mail", 1, None)
    page = await env.driver.list(ListQuery(states=frozenset({State.SUSPENDED})))
    (view,) = page.items
    assert (view.id, view.state_reason, view.last_outcome) == (held.token.job_id, "sleep", OutcomeKind.SUSPENDED)
    assert view.waiting_on == ()
    others = frozenset(State) - {State.SUSPENDED}
    assert (await env.driver.list(ListQuery(states=others))).items == ()
    assert await env.driver.finished_among([held.token.job_id]) == frozenset()


async def test_a_suspended_job_is_nobody_s(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep(), worker=worker)
    assert await env.claim(worker) == ()
    assert await env.driver.surrender(worker) == ()
    await env.vanish(lease=HOUR)
    assert await env.driver.reap() == ()
    assert await state_of(env, held.token.job_id) is State.SUSPENDED


async def test_a_suspended_job_keeps_its_key(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep(), key="k")
    answer = await env.enqueue_again(key="k")
    assert (answer.id, answer.deduped) == (held.token.job_id, True)


async def test_steps_recorded_before_stay(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "a", "b")
    await suspend(env, held, a_sleep(number=2))
    assert await steps(env, held.token.job_id) == ["a", "b"]


# --- the fence


@every_fence
async def test_a_claim_that_is_gone_suspends_nothing(env: DriverEnv, fence: Fence) -> None:
    held = await env.running()
    child = a_child(held)
    stale = await fence(env, held)
    before = await env.driver.describe(held.token.job_id)
    assert await env.settle(stale, Suspended(waits=(a_sleep(), a_call(child, number=1)))) is not SettleAnswer.SETTLED
    assert await env.driver.describe(held.token.job_id) == before
    assert (await env.driver.history(held.token.job_id, held.run_id)).waits == ()
    assert await env.driver.describe(child.id) is None


async def test_the_same_suspension_twice_is_one(env: DriverEnv) -> None:
    held = await env.running()
    child = a_child(held)
    await suspend(env, held, a_call(child))
    before = await env.describe(held.token.job_id)
    assert await env.settle(held.token, Suspended(waits=(a_call(child),))) is SettleAnswer.REAPED
    assert await env.describe(held.token.job_id) == before


async def test_a_suspension_settles_beside_others(env: DriverEnv) -> None:
    worker = await enlist(env)
    await env.driver.enqueue_many([new_job() for _ in range(5)])
    tokens = [held.token for held in await env.claim(worker)]
    await env.driver.cancel(tokens[2].job_id, reason="stop")
    outcomes: list[Outcome] = [
        Suspended(waits=(a_sleep(),)),
        Completed(result="1"),
        Suspended(waits=(a_sleep(),)),
        Retried(error=ERROR, delay=MINUTE),
        Suspended(waits=(an_event(),)),
    ]
    answers = await env.driver.settle(
        [Settlement(token=token, outcome=outcome) for token, outcome in zip(tokens, outcomes, strict=True)]
    )
    assert [answer is SettleAnswer.SETTLED for answer in answers] == [True, True, False, True, True]
    assert answers[2] is SettleAnswer.CANCELLED
    assert [await state_of(env, token.job_id) for token in tokens] == [
        State.SUSPENDED,
        State.DONE,
        State.CANCELLED,
        State.DELAYED,
        State.SUSPENDED,
    ]


async def test_a_suspension_and_a_claim_may_come_together(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    other = await env.enqueue()
    request = ClaimRequest(worker_id=worker, shares=(QueueShare(queue=QUEUE, room=1),), names=frozenset({NAME}), room=1)
    answers, claimed = await env.driver.settle_and_claim(
        [Settlement(token=held.token, outcome=Suspended(waits=(a_sleep(),)))], request
    )
    assert answers == (SettleAnswer.SETTLED,)
    assert [job.token.job_id for job in claimed] == [other]
    assert await state_of(env, held.token.job_id) is State.SUSPENDED


# --- more waits than one


async def test_waits_come_in_the_order_they_began_in(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep("b", 1), a_sleep("a", 0, delay=MINUTE), worker=worker)
    assert await waits(env, held.token.job_id) == ["a", "b"]
    await env.advance(MINUTE)
    await env.driver.wake()
    held = await env.claim_one(worker)
    assert await suspend(env, held, known(a_sleep("b", 1)), a_sleep("c", 2)) is State.SUSPENDED
    assert await waits(env, held.token.job_id) == ["b", "c"]


async def test_a_known_wait_is_as_it_was(env: DriverEnv) -> None:
    worker = await enlist(env, code_version="1")
    long = an_event("long", 0, delay=HOUR)
    held = await suspended(env, long, a_sleep("short", 1, delay=MINUTE), worker=worker)
    before = (await history(env, held.token.job_id)).waits[0]
    await env.advance(MINUTE)
    assert await env.driver.wake() == 1
    held = await env.claim_one(await enlist(env, code_version="2"))
    await env.advance(SECOND)
    again = NewWait(name="long", kind=StepKind.EVENT, place=at(0), is_known=True, delay=SECOND, event="x", key="y")
    assert await suspend(env, held, again) is State.SUSPENDED
    assert await the_wait(env, held.token.job_id) == before
    await emit(env)
    assert await steps(env, held.token.job_id) == ["short", "long"]


async def test_claims_are_counted_and_attempts_are_not(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep("n0"), worker=worker)
    for number in range(1, 4):
        await env.advance(HOUR)
        await env.driver.wake()
        held = await env.claim_one(worker)
        assert held.counters == Counters(attempt=1, claim_no=number + 1)
        await suspend(env, held, a_sleep(f"n{number}", number))
    assert (await env.describe(held.token.job_id)).counters == Counters(attempt=0, claim_no=4)
    assert [step.claim_no for step in (await history(env, held.token.job_id)).steps] == [1, 2, 3]


# --- ready at once


async def test_a_known_wait_that_is_over_makes_the_job_ready_at_once(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, an_event("first", 0), an_event("second", 1, key="8"), worker=worker)
    await emit(env)
    held = await env.claim_one(worker)
    await emit(env, key="8")
    later = await env.enqueue()
    assert await suspend(env, held, known(an_event("second", 1))) is State.READY
    assert (await env.describe(held.token.job_id)).counters == Counters(attempt=0, claim_no=2)
    assert await waits(env, held.token.job_id) == []
    assert [one.token.job_id for one in await env.claim(worker)] == [held.token.job_id, later]


async def test_new_waits_beside_one_that_is_over_are_stored(env: DriverEnv) -> None:
    held = await env.running()
    await emit(env)
    assert await suspend(env, held, a_sleep("nap", 0), an_event("approval", 1)) is State.READY
    assert await steps(env, held.token.job_id) == ["approval"]
    assert await waits(env, held.token.job_id) == ["nap"]


async def test_a_time_that_has_passed_ends_with_the_next_wake(env: DriverEnv) -> None:
    held = await suspended(env, a_sleep(until=env.now() - MINUTE))
    wake_in = (await env.driver.due()).wake_in
    assert wake_in is not None
    assert wake_in <= timedelta()
    assert await env.driver.wake() == 1
    assert await state_of(env, held.token.job_id) is State.READY
