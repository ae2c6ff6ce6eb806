from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.domain.event import EventQuery
from app.domain.job import JobId
from app.domain.state import State
from app.domain.step import NewWait, RetryMode
from tests.conformance.runs import (
    HOUR,
    MINUTE,
    a_sleep,
    an_event,
    at,
    die,
    emit,
    enlist,
    history,
    known,
    new_event,
    order,
    state_of,
    steps,
    suspend,
    suspended,
    the_step,
    waits,
)
from tests.support.drivers import DriverEnv


async def payloads(env: DriverEnv, job_id: JobId) -> dict[str, str | None]:
    """Give what each recorded step holds."""
    return {step.name: step.value for step in (await history(env, job_id)).steps}


# --- a run that begins to wait finds what was emitted


async def test_an_event_since_the_enqueue_makes_the_run_ready_at_once(env: DriverEnv) -> None:
    worker = await enlist(env, code_version="2.1.0")
    held = await env.running(worker)
    await emit(env, "1")
    await env.advance(MINUTE)
    assert await suspend(env, held, an_event()) is State.READY
    step = await the_step(env, held.token.job_id)
    assert (step.value, step.has_event, step.claim_no, step.code_version) == ("1", True, 1, "2.1.0")
    assert (step.started_at, step.ended_at) == (env.now(), env.now())
    assert await waits(env, held.token.job_id) == []
    (event,) = await env.driver.events(EventQuery())
    assert event.matched == 0


async def test_an_event_of_the_enqueue_s_own_instant_counts_and_one_before_does_not(env: DriverEnv) -> None:
    worker = await enlist(env)
    await emit(env, '"before"')
    await env.advance(timedelta(milliseconds=1))
    await emit(env, '"same"')
    held = await env.running(worker)
    assert await suspend(env, held, an_event()) is State.READY
    assert await payloads(env, held.token.job_id) == {"approval": '"same"'}


async def test_an_event_before_the_enqueue_is_not_found(env: DriverEnv) -> None:
    await emit(env)
    await env.advance(timedelta(milliseconds=1))
    held = await suspended(env, an_event())
    assert await waits(env, held.token.job_id) == ["approval"]


async def test_an_event_while_the_job_was_delayed_counts(env: DriverEnv) -> None:
    worker = await enlist(env)
    await env.enqueue(delay=HOUR)
    await env.advance(MINUTE)
    await emit(env, "1")
    await env.advance(HOUR)
    await env.driver.promote()
    assert await suspend(env, await env.claim_one(worker), an_event()) is State.READY


async def test_from_now_finds_nothing_that_was(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await emit(env, "1")
    assert await suspend(env, held, an_event(from_now=True)) is State.SUSPENDED
    assert (await emit(env, "2")).matched == 1
    assert await payloads(env, held.token.job_id) == {"approval": "2"}


async def test_another_key_s_event_is_not_found(env: DriverEnv) -> None:
    held = await env.running()
    await emit(env, key="8")
    await emit(env, name="order.refused")
    await emit(env, tenant="acme")
    assert await suspend(env, held, an_event()) is State.SUSPENDED


# --- what a run has taken


async def test_a_run_takes_events_in_the_store_s_order_each_once(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    for number in range(3):
        await emit(env, str(number))
    for number in range(3):
        assert await suspend(env, held, an_event(f"e{number}", number)) is State.READY
        held = await env.claim_one(worker)
    assert await payloads(env, held.token.job_id) == {"e0": "0", "e1": "1", "e2": "2"}
    assert await suspend(env, held, an_event("e3", 3)) is State.SUSPENDED


async def test_an_event_that_ended_a_wait_is_not_found_again(env: DriverEnv) -> None:
    worker = await enlist(env)
    await suspended(env, an_event("e0", 0), worker=worker)
    await emit(env, "0")
    held = await env.claim_one(worker)
    assert await suspend(env, held, an_event("e1", 1)) is State.SUSPENDED
    await emit(env, "1")
    assert await payloads(env, held.token.job_id) == {"e0": "0", "e1": "1"}


async def test_an_event_passed_over_is_found_later(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await emit(env, "0")
    await suspend(env, held, an_event("e0", 0, from_now=True))
    await emit(env, "1")
    held = await env.claim_one(worker)
    assert await suspend(env, held, an_event("e1", 1)) is State.READY
    assert await payloads(env, held.token.job_id) == {"e0": "1", "e1": "0"}


async def test_what_one_run_has_taken_is_there_for_another(env: DriverEnv) -> None:
    worker = await enlist(env)
    first, second = await env.running(worker), await env.running(worker)
    await emit(env, "1")
    assert await suspend(env, first, an_event()) is State.READY
    assert await suspend(env, second, an_event()) is State.READY
    assert await payloads(env, second.token.job_id) == {"approval": "1"}


async def test_a_wait_that_ran_out_of_time_has_taken_nothing(env: DriverEnv) -> None:
    worker = await enlist(env)
    await suspended(env, an_event("e0", 0, delay=MINUTE), worker=worker)
    await env.advance(MINUTE)
    await env.driver.wake()
    await emit(env, "1")
    held = await env.claim_one(worker)
    assert await suspend(env, held, an_event("e1", 1)) is State.READY
    assert await payloads(env, held.token.job_id) == {"e0": None, "e1": "1"}


@pytest.mark.parametrize("how", ["fresh", "from_step"])
async def test_a_run_taken_back_may_take_an_event_again(env: DriverEnv, how: str) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await emit(env, "1")
    await suspend(env, held, an_event())
    await die(env, await env.claim_one(worker))
    if how == "fresh":
        await env.driver.retry(held.token.job_id, mode=RetryMode.FRESH)
    else:
        await env.driver.retry(held.token.job_id, from_step="approval")
    again = await env.claim_one(worker)
    assert await suspend(env, again, an_event()) is State.READY
    assert await payloads(env, held.token.job_id) == {"approval": "1"}


# --- several waits of one run


def two(first: dict[str, str], second: dict[str, str]) -> tuple[NewWait, NewWait]:
    return an_event("a", 0, place=at(0, "0.0"), **first), an_event("b", 1, place=at(1, "0.1"), **second)


async def test_one_event_ends_the_wait_with_the_lower_number_of_two_that_began_together(env: DriverEnv) -> None:
    worker = await enlist(env)
    a, b = two({}, {})
    await suspended(env, b, a, worker=worker)
    assert (await emit(env, "1")).matched == 1
    held = await env.claim_one(worker)
    assert await payloads(env, held.token.job_id) == {"a": "1"}
    assert await suspend(env, held, known(b)) is State.SUSPENDED
    assert (await emit(env, "2")).matched == 1
    assert await payloads(env, held.token.job_id) == {"a": "1", "b": "2"}


async def test_one_event_ends_the_wait_that_began_first(env: DriverEnv) -> None:
    worker = await enlist(env)
    late, early = two({}, {})
    await suspended(env, early, a_sleep(number=2, delay=MINUTE), worker=worker)
    await env.advance(MINUTE)
    await env.driver.wake()
    held = await env.claim_one(worker)
    assert await suspend(env, held, known(early), late) is State.SUSPENDED
    assert (await emit(env, "1")).matched == 1
    assert await payloads(env, held.token.job_id) == {"nap": None, "b": "1"}


async def test_two_waits_of_one_suspension_take_two_events(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await emit(env, "1")
    await emit(env, "2")
    assert await suspend(env, held, *two({}, {})) is State.READY
    assert await payloads(env, held.token.job_id) == {"a": "1", "b": "2"}


async def test_two_waits_of_one_suspension_do_not_share_an_event(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await env.running(worker)
    await emit(env, "1")
    assert await suspend(env, held, *two({}, {})) is State.READY
    assert await payloads(env, held.token.job_id) == {"a": "1"}
    assert await waits(env, held.token.job_id) == ["b"]


async def test_waits_for_two_keys_are_two(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, *two({}, {"key": "8"}), worker=worker)
    assert (await emit(env, "2", key="8")).matched == 1
    assert await payloads(env, held.token.job_id) == {"b": "2"}
    assert (await emit(env, "1")).matched == 1
    assert await payloads(env, held.token.job_id) == {"a": "1", "b": "2"}
    assert await order(env, worker) == [held.token.job_id]


async def test_a_suspension_and_an_emit_at_once_never_miss_each_other(env: DriverEnv) -> None:
    worker = await enlist(env)
    for number in range(10):
        held = await env.running(worker)
        await asyncio.gather(suspend(env, held, an_event(key=str(number))), emit(env, key=str(number)))
        assert await state_of(env, held.token.job_id) is State.READY
        assert await steps(env, held.token.job_id) == ["approval"]
        assert len(await env.claim(worker)) == 1


async def test_emits_of_one_event_at_once_are_one(env: DriverEnv) -> None:
    held = await suspended(env, an_event())
    event = new_event()
    answers = await asyncio.gather(*(env.driver.emit(event) for _ in range(4)))
    assert [answer.matched for answer in answers] == [1, 1, 1, 1]
    assert sorted(answer.is_repeated for answer in answers) == [False, True, True, True]
    assert await steps(env, held.token.job_id) == ["approval"]
