"""Ended jobs that are over: which they are, by state, job type and tenant, and what stays although it is old."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.event import EventQuery
from app.domain.job import JobId
from app.domain.outcome import Completed, DeadLettered, Settlement
from app.domain.retention import Chore, EndedRule, Retention
from app.domain.state import DeadReason, State
from tests.conformance.endings import completed
from tests.conformance.runs import CHILD, a_call, a_child, claim_child, enlist, new_event, state_of, suspend
from tests.support.drivers import ERROR, DriverEnv, new_id, new_job

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
WEEK = EndedRule(done=7 * DAY, dead=30 * DAY)


async def ended(env: DriverEnv, state: State = State.CANCELLED, **fields: Any) -> JobId:
    """Give a job that has just ended."""
    if state is State.CANCELLED:
        job_id = await env.enqueue(**fields)
        await env.driver.cancel(job_id, reason="stop")
        return job_id
    held = await env.running(**fields)
    outcome = Completed() if state is State.DONE else DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
    await env.close_attempt(held.token, outcome)
    return held.token.job_id


async def left(env: DriverEnv, *job_ids: JobId) -> list[bool]:
    """Say of each job whether it is still there."""
    return [await env.driver.describe(job_id) is not None for job_id in job_ids]


@pytest.mark.parametrize(("state", "kept"), [(State.DONE, 7 * DAY), (State.CANCELLED, 7 * DAY), (State.DEAD, 30 * DAY)])
async def test_a_job_goes_once_its_retention_is_over_and_not_at_the_instant(
    env: DriverEnv, state: State, kept: timedelta
) -> None:
    job_id = await ended(env, state)
    await env.advance(kept)
    assert (await env.driver.purge_ended(WEEK)).deleted == 0
    await env.advance(timedelta(microseconds=1))
    assert (await env.driver.purge_ended(WEEK)).deleted == 1
    assert await left(env, job_id) == [False]


async def test_a_job_types_own_retention_stands_for_all_its_ended_jobs(env: DriverEnv) -> None:
    brief, long, usual = [
        [await ended(env, state, name=name) for state in (State.DONE, State.DEAD)]
        for name in ("jobs.brief", "jobs.long", "jobs.usual")
    ]
    rule = EndedRule(done=7 * DAY, dead=30 * DAY, by_name={"jobs.brief": DAY, "jobs.long": 60 * DAY})
    await env.advance(DAY + SECOND)
    assert (await env.driver.purge_ended(rule)).deleted == 2
    assert await left(env, *brief, *long, *usual) == [False, False, True, True, True, True]
    await env.advance(30 * DAY)
    assert (await env.driver.purge_ended(rule)).deleted == 2
    assert await left(env, *long, *usual) == [True, True, False, False]
    await env.advance(30 * DAY)
    assert (await env.driver.purge_ended(rule)).deleted == 2


async def test_an_operator_names_states_a_job_type_and_a_tenant(env: DriverEnv) -> None:
    wanted = await ended(env, State.DEAD, name="jobs.a", tenant="north")
    others = [
        await ended(env, State.DONE, name="jobs.a", tenant="north"),
        await ended(env, State.DEAD, name="jobs.b", tenant="north"),
        await ended(env, State.DEAD, name="jobs.a", tenant="south"),
    ]
    await env.advance(DAY)
    rule = EndedRule.older_than(SECOND, states={State.DEAD}, name="jobs.a", tenant="north")
    assert (await env.driver.purge_ended(rule, dry=True)).deleted == 1
    assert await left(env, wanted) == [True]
    assert (await env.driver.purge_ended(rule)).deleted == 1
    assert await left(env, wanted, *others) == [False, True, True, True]


async def test_steps_go_on_behind_what_they_have_looked_at(env: DriverEnv) -> None:
    jobs = [await ended(env, State.DEAD if number % 2 else State.CANCELLED) for number in range(7)]
    await env.advance(8 * DAY)
    steps: list[tuple[int, int]] = []
    after: JobId | None = None
    while not steps or after is not None:
        step = await env.driver.purge_ended(WEEK, after=after, batch=3)
        steps.append((step.looked, step.deleted))
        after = step.next_after
    assert steps == [(3, 2), (3, 1), (1, 1)]
    assert await left(env, *jobs) == [False, True] * 3 + [False]


async def test_a_dry_run_counts_what_would_go_and_deletes_nothing(env: DriverEnv) -> None:
    jobs = [await ended(env) for _ in range(3)]
    await env.advance(8 * DAY)
    first = await env.driver.purge_ended(WEEK, batch=2, dry=True)
    assert (first.looked, first.deleted) == (2, 2)
    second = await env.driver.purge_ended(WEEK, after=first.next_after, batch=2, dry=True)
    assert (second.looked, second.deleted, second.next_after) == (1, 1, None)
    assert await left(env, *jobs) == [True] * 3


# --- what stays


async def _called(env: DriverEnv, **fields: Any) -> tuple[JobId, JobId]:
    """Give a suspended parent and its child, which ended without anybody telling the parent."""
    worker = await enlist(env)
    there = await env.enqueue(CHILD, key="k")
    held = await env.running(worker, **fields)
    await suspend(env, held, a_call(a_child(held, key="k")))
    child = await claim_child(env, worker, there)
    await env.driver.settle([Settlement(child.token, Completed(result="8"), is_child=False)])
    return held.token.job_id, there


async def test_a_child_stays_while_its_parent_has_not_heard_of_its_end(env: DriverEnv) -> None:
    parent, child = await _called(env)
    await env.advance(8 * DAY)
    assert (await env.driver.purge_ended(WEEK)).deleted == 0
    assert (await env.driver.tidy(Chore.JOBS, Retention())).deleted == 0
    assert (await env.driver.sweep_waits()).woken == 1
    assert await state_of(env, parent) is State.READY
    assert (await env.driver.purge_ended(WEEK)).deleted == 1
    assert await left(env, parent, child) == [True, False]


async def test_a_child_does_not_stay_for_a_parent_that_has_ended(env: DriverEnv) -> None:
    """Or two runs that waited for each other until they died would both stay for ever."""
    parent, child = await _called(env, deadline=DAY)
    await env.advance(8 * DAY)
    assert len(await env.driver.expire()) == 1
    assert await state_of(env, parent) is State.DEAD
    assert (await env.driver.purge_ended(WEEK)).deleted == 1
    assert await left(env, parent, child) == [True, False]


async def test_a_key_whose_window_outlives_the_job_still_dedupes_after_a_round(env: DriverEnv) -> None:
    job_id = await ended(env, State.DONE, key="order:1", dedupe_for=10 * DAY)
    await env.advance(8 * DAY)
    for chore in Chore:
        await env.driver.tidy(chore, Retention())
    assert await left(env, job_id) == [False]
    again = await env.enqueue_again(key="order:1")
    assert (again.id, again.deduped) == (job_id, True)
    await env.advance(2 * DAY)
    assert (await env.driver.tidy(Chore.KEYS, Retention())).deleted == 1
    assert not (await env.enqueue_again(key="order:1")).deduped


async def test_the_key_of_a_living_job_is_never_over(env: DriverEnv) -> None:
    await env.enqueue(key="order:1", dedupe_for=DAY)
    await env.advance(8 * DAY)
    assert (await env.driver.tidy(Chore.KEYS, Retention())).deleted == 0
    assert (await env.enqueue_again(key="order:1", dedupe_for=DAY)).deduped


@pytest.mark.parametrize("source", [timedelta(days=90), timedelta(days=120)])
async def test_a_source_is_remembered_for_its_retention_and_a_day(env: DriverEnv, source: timedelta) -> None:
    source_id = new_id()
    first = await ended(env, State.DONE, source_id=source_id)
    retention = Retention(source=source)
    await env.advance(source + DAY)
    for chore in (Chore.JOBS, Chore.SOURCES):
        await env.driver.tidy(chore, retention)
    assert await left(env, first) == [False]
    again = await env.enqueue_again(source_id=source_id)
    assert (again.id, again.deduped) == (first, True)
    await env.advance(SECOND)
    assert (await env.driver.tidy(Chore.SOURCES, retention)).deleted == 1
    assert not (await env.enqueue_again(source_id=source_id)).deduped


# --- events


async def _events(env: DriverEnv) -> int:
    return len(await env.driver.events(EventQuery(limit=200)))


async def test_an_event_goes_after_its_retention(env: DriverEnv) -> None:
    await env.driver.emit(new_event())
    await env.advance(30 * DAY)
    assert (await env.driver.tidy(Chore.EVENTS, Retention())).deleted == 0
    await env.advance(SECOND)
    assert await env.driver.count_over(Chore.EVENTS, Retention()) == 1
    assert (await env.driver.tidy(Chore.EVENTS, Retention())).deleted == 1
    assert await _events(env) == 0


@pytest.mark.parametrize("how", ["ready", "dead"])
async def test_an_event_stays_while_a_job_enqueued_before_it_is_not_done(env: DriverEnv, how: str) -> None:
    """It may still ask for the event, a dead one once it is retried."""
    job_id = await env.enqueue() if how == "ready" else await ended(env, State.DEAD)
    await env.driver.emit(new_event())
    await env.advance(40 * DAY)
    assert (await env.driver.tidy(Chore.EVENTS, Retention())).deleted == 0
    assert await _events(env) == 1
    if how == "dead":
        await env.driver.retry(job_id)
    held = await env.claim_one(await env.register())
    await env.close_attempt(held.token, Completed())
    assert (await env.driver.tidy(Chore.EVENTS, Retention())).deleted == 1


async def test_numbers_of_events_are_not_given_again(env: DriverEnv) -> None:
    await env.driver.emit(new_event())
    (first,) = await env.driver.events(EventQuery(limit=1))
    await env.advance(31 * DAY)
    await env.driver.tidy(Chore.EVENTS, Retention())
    await env.driver.emit(new_event())
    (second,) = await env.driver.events(EventQuery(limit=1))
    assert second.seq > first.seq


# --- rounds


async def test_a_kind_rests_after_its_round_unless_it_is_asked_for_now(env: DriverEnv) -> None:
    minute = timedelta(minutes=1)
    first = await env.driver.tidy(Chore.JOBS, Retention(), rest=minute)
    assert (first.is_over, first.is_idle) == (True, False)
    await completed(env, {})
    await env.advance(30 * SECOND)
    resting = await env.driver.tidy(Chore.JOBS, Retention(), rest=minute)
    assert (resting.deleted, resting.is_over, resting.is_idle, resting.behind) == (0, True, True, 30 * SECOND)
    assert not (await env.driver.tidy(Chore.JOBS, Retention(), rest=minute, now=True)).is_idle
    await env.advance(8 * DAY)
    again = await env.driver.tidy(Chore.JOBS, Retention(), rest=minute)
    assert (again.deleted, again.is_idle) == (1, False)


async def test_a_round_takes_as_many_steps_as_there_are_batches(env: DriverEnv) -> None:
    jobs = [new_job() for _ in range(5)]
    await env.driver.enqueue_many(jobs)
    for job in jobs:
        await env.driver.cancel(job.id, reason="stop")
    await env.advance(8 * DAY)
    steps = [await env.driver.tidy(Chore.JOBS, Retention(), batch=2, rest=DAY) for _ in range(4)]
    assert [(step.deleted, step.is_over, step.is_idle) for step in steps] == [
        (2, False, False),
        (2, False, False),
        (1, True, False),
        (0, True, True),
    ]


async def test_keys_of_one_instant_go_in_one_round(env: DriverEnv) -> None:
    jobs = [new_job(key=f"order:{number}", dedupe_for=DAY) for number in range(5)]
    await env.driver.enqueue_many(jobs)
    for job in jobs:
        await env.driver.cancel(job.id, reason="stop")
    await env.advance(8 * DAY)
    assert await env.driver.count_over(Chore.KEYS, Retention()) == 5
    deleted = 0
    while not (step := await env.driver.tidy(Chore.KEYS, Retention(), batch=2)).is_over:
        deleted += step.deleted
    assert deleted + step.deleted == 5


async def test_the_next_round_looks_again_at_what_stayed(env: DriverEnv) -> None:
    dead, cancelled = await ended(env, State.DEAD), await ended(env)
    await env.advance(8 * DAY)
    step = await env.driver.tidy(Chore.JOBS, Retention())
    assert (step.deleted, step.is_over) == (1, True)
    await env.advance(30 * DAY)
    assert (await env.driver.tidy(Chore.JOBS, Retention())).deleted == 1
    assert await left(env, dead, cancelled) == [False, False]
