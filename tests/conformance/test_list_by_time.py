"""Lists in the order of a time: along the index, both ways, one job never twice and none left out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.job import JobId
from app.domain.outcome import DeadLettered
from app.domain.snapshot import Place
from app.domain.state import DeadReason, State
from app.drivers.reading import ListQuery, TimeOrder, TimeSort
from tests.support.drivers import ERROR, DriverEnv, new_job

MINUTE = timedelta(minutes=1)
DELAYED = ListQuery(states=frozenset({State.DELAYED}), limit=2)
BAD = ListQuery(states=frozenset({State.DEAD, State.CANCELLED}), limit=2)


async def _forth_and_back(env: DriverEnv, query: ListQuery, order: TimeOrder) -> list[JobId]:
    """Follow the places to the end and back to the beginning; both ways lead along the same jobs."""
    forth: list[JobId] = []
    page = await env.driver.list_by_time(query, order)
    assert page.prev_place is None
    while True:
        forth += [item.id for item in page.items]
        assert len(page.items) <= query.limit
        if page.next_place is None:
            break
        page = await env.driver.list_by_time(query, replace(order, place=page.next_place))
    back = [item.id for item in page.items]
    while page.prev_place is not None:
        page = await env.driver.list_by_time(query, replace(order, place=page.prev_place, is_back=True))
        back = [item.id for item in page.items] + back
    assert back == forth
    return forth


@pytest.mark.parametrize("is_ascending", [True, False])
async def test_delayed_jobs_are_listed_by_when_they_are_due(env: DriverEnv, *, is_ascending: bool) -> None:
    later = await env.enqueue(run_at=env.now() + 2 * MINUTE)
    at_once = env.now() + MINUTE
    same = sorted([await env.enqueue(run_at=at_once) for _ in range(5)])
    await env.enqueue()
    order = TimeOrder(sort=TimeSort.RUN_AT, is_ascending=is_ascending)
    found = await _forth_and_back(env, DELAYED, order)
    assert found == ([*same, later] if is_ascending else [later, *reversed(same)])
    assert await _forth_and_back(env, replace(DELAYED, run_at_after=at_once + MINUTE), order) == [later]
    bounded = await _forth_and_back(env, replace(DELAYED, run_at_before=at_once + MINUTE), order)
    assert bounded == (same if is_ascending else same[::-1])


@pytest.mark.parametrize("is_ascending", [True, False])
async def test_bad_ends_are_listed_by_when_they_came(env: DriverEnv, *, is_ascending: bool) -> None:
    ended: list[JobId] = []
    for number in range(5):
        await env.advance(MINUTE)
        held = await env.running(await env.register())
        if number % 2:
            await env.driver.cancel(held.token.job_id, reason="not needed")
        else:
            await env.close_attempt(held.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
        ended.append(held.token.job_id)
    order = TimeOrder(sort=TimeSort.FINISHED_AT, is_ascending=is_ascending)
    turned = ended if is_ascending else ended[::-1]
    assert await _forth_and_back(env, BAD, order) == turned
    dead = await _forth_and_back(env, replace(BAD, states=frozenset({State.DEAD})), order)
    assert dead == turned[::2]
    assert await _forth_and_back(env, replace(BAD, finished_before=env.now()), order) == [
        job_id for job_id in turned if job_id != ended[-1]
    ]


async def test_an_empty_page_leads_back_to_the_last_job(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=MINUTE)
    order = TimeOrder(sort=TimeSort.RUN_AT, is_ascending=True)
    page = await env.driver.list_by_time(replace(DELAYED, limit=1), order)
    assert (page.items[0].id, page.next_place) == (job_id, None)
    assert page.items[0].run_at is not None
    behind = replace(order, place=Place(page.items[0].run_at, job_id))
    empty = await env.driver.list_by_time(DELAYED, behind)
    assert (empty.items, empty.next_place) == ((), None)
    back = await env.driver.list_by_time(DELAYED, replace(order, place=empty.prev_place, is_back=True))
    assert [item.id for item in back.items] == [job_id]


async def test_a_time_narrows_any_list(env: DriverEnv) -> None:
    soon = await env.enqueue(run_at=env.now() + MINUTE)
    await env.enqueue(run_at=env.now() + 3 * MINUTE)
    await env.driver.enqueue_many([new_job()])
    query = ListQuery(run_at_after=env.now(), run_at_before=env.now() + 2 * MINUTE)
    assert [item.id for item in (await env.driver.list(query)).items] == [soon]
    assert (await env.driver.count_jobs(query)).value == 1
