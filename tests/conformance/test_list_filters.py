from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.edit import JobPatch
from app.domain.errors import error_classes
from app.domain.job import JobId
from app.domain.ledger import CAUSE_DRAIN
from app.domain.outcome import Completed, DeadLettered, ErrorInfo, Interrupted, Retried
from app.domain.snapshot import JobCount
from app.domain.state import DeadReason, State
from app.drivers.reading import ListQuery
from tests.conformance.endings import crashed_too_often, expired, past_deadline, past_deadline_while_suspended
from tests.support.drivers import DriverEnv, new_id, new_job

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


async def _ids(env: DriverEnv, **wanted: Any) -> set[JobId]:
    found = {item.id for item in (await env.driver.list(ListQuery(**wanted))).items}
    count = await env.driver.count_jobs(ListQuery(**wanted))
    assert count == JobCount(value=len(found), is_capped=False)
    return found


async def test_pages_lead_back_as_they_led_on(env: DriverEnv) -> None:
    jobs = [new_job() for _ in range(7)]
    await env.driver.enqueue_many(jobs)
    newest = sorted((job.id for job in jobs), reverse=True)
    first = await env.driver.list(ListQuery(limit=3))
    second = await env.driver.list(ListQuery(limit=3, before=first.next_after))
    third = await env.driver.list(ListQuery(limit=3, before=second.next_after))
    assert (first.newer_than, second.newer_than, third.newer_than) == (None, newest[3], newest[6])
    back = await env.driver.list(ListQuery(limit=3, after=third.newer_than))
    assert [item.id for item in back.items] == newest[3:6]
    assert (back.next_after, back.newer_than) == (newest[5], newest[3])
    top = await env.driver.list(ListQuery(limit=3, after=back.newer_than))
    assert [item.id for item in top.items] == newest[:3]
    assert (top.next_after, top.newer_than) == (newest[2], None)


async def test_a_page_back_is_the_one_just_before_also_with_filters(env: DriverEnv) -> None:
    ids = [await env.enqueue(queue="a" if number % 2 else "b") for number in range(8)]
    odd = sorted(ids[1::2], reverse=True)
    page = await env.driver.list(ListQuery(queue="a", states=frozenset({State.READY}), limit=2, after=odd[3]))
    assert [item.id for item in page.items] == odd[1:3]
    top = await env.driver.list(ListQuery(queue="a", states=frozenset({State.READY}), limit=2, after=page.newer_than))
    assert [item.id for item in top.items] == odd[:1]
    assert top.newer_than is None


async def test_nothing_newer_leads_on_to_the_page_it_came_from(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    empty = await env.driver.list(ListQuery(after=job_id))
    assert empty.items == ()
    assert [item.id for item in (await env.driver.list(ListQuery(before=empty.next_after))).items] == [job_id]


async def test_an_empty_last_page_leads_back_to_the_one_before(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    empty = await env.driver.list(ListQuery(before=job_id))
    assert (empty.items, empty.next_after) == ((), None)
    assert [item.id for item in (await env.driver.list(ListQuery(after=empty.newer_than))).items] == [job_id]


async def test_jobs_are_found_by_what_they_were_enqueued_as(env: DriverEnv) -> None:
    parent = await env.enqueue(tags=("a", "b"), key="order:1")
    child = await env.enqueue(tags=("b", "c"), parent_id=parent)
    await env.enqueue()
    assert await _ids(env, tags_any=("a", "c")) == {parent, child}
    assert await _ids(env, tags_all=("b",)) == {parent, child}
    assert await _ids(env, tags_all=("a", "b")) == {parent}
    assert await _ids(env, tags_any=("a",), tags_all=("c",)) == set()
    assert await _ids(env, key="order:1") == {parent}
    assert await _ids(env, parent_id=parent) == {child}
    assert await _ids(env, parent_id=parent, tags_any=("a",)) == set()


async def test_tags_are_found_as_they_stand_now(env: DriverEnv) -> None:
    tagged = await env.enqueue(tags=("a", "b"))
    bare = await env.enqueue()
    await env.driver.patch(tagged, JobPatch(tags=("b", "c")))
    await env.driver.patch(bare, JobPatch(tags=("a", "a")))
    assert await _ids(env, tags_any=("a",)) == {bare}
    assert await _ids(env, tags_any=("a", "c")) == {bare, tagged}
    copy = (await env.driver.fork(tagged, new_id=new_id())).id
    assert await _ids(env, tags_all=("b", "c")) == {tagged, copy}
    await env.driver.patch(bare, JobPatch(tags=()))
    await env.driver.cancel(tagged, reason="over")
    await env.driver.delete(tagged)
    assert await _ids(env, tags_any=("a", "b", "c")) == {copy}


async def test_of_several_things_each_is_asked_for(env: DriverEnv) -> None:
    """Whichever of them the store looks through."""
    plain = await env.enqueue(tenant="acme", tags=("a",))
    keyed = await env.enqueue(tenant="acme", tags=("a", "b"), key="k")
    await env.enqueue(tenant="acme", key="other")
    other = await env.enqueue(tags=("a", "b"), delay=MINUTE)
    assert await _ids(env, tenant="acme", tags_any=("a", "b")) == {plain, keyed}
    assert await _ids(env, tenant="acme", tags_any=("a",), key="k") == {keyed}
    assert await _ids(env, tags_any=("b", "a"), states=frozenset({State.DELAYED})) == {other}
    assert await _ids(env, tags_all=("a", "b"), states=frozenset({State.READY, State.DONE})) == {keyed}
    assert await _ids(env, tenant="default", tags_all=("a", "b")) == {other}


async def test_jobs_are_found_by_where_they_stand(env: DriverEnv) -> None:
    start = env.now()
    error = ErrorInfo(type="ValueError", message="no", code="JOB_TIMEOUT", traceback="")
    broken = await env.running()
    await env.close_attempt(broken.token, DeadLettered(error=error, reason=DeadReason.TERMINAL))
    await env.advance(MINUTE)
    done = await env.running()
    await env.close_attempt(done.token, Completed(result="1"))
    worker = await env.register()
    held = await env.running(worker)
    assert await _ids(env, worker_id=worker) == {held.token.job_id}
    assert await _ids(env, error_code="JOB_TIMEOUT") == {broken.token.job_id}
    assert await _ids(env, finished_after=start + MINUTE) == {done.token.job_id}
    assert await _ids(env, finished_before=start + MINUTE) == {broken.token.job_id}
    assert await _ids(env, finished_after=start, tenant="other") == set()


async def test_jobs_are_found_by_every_code_that_they_show(env: DriverEnv) -> None:
    """Also by those of ends that no attempt has: what a job shows is what it is found by, in every driver."""
    worker, shown = await env.register(), defaultdict[str, set[JobId]](set)
    for code in (*error_classes(), "shop.unknown"):
        held = await env.running(worker)
        error = ErrorInfo(type="ValueError", message="no", code=code, traceback="")
        await env.close_attempt(held.token, DeadLettered(error=error, reason=DeadReason.TERMINAL))
    for end in (expired, past_deadline, past_deadline_while_suspended, crashed_too_often, past_deadline_after_failures):
        await end(env, {})
    for item in (await env.driver.list(ListQuery(limit=200))).items:
        assert item.error is not None
        shown[item.error.code or ""].add(item.id)
    assert (len(shown["JOB_EXPIRED"]), len(shown["JOB_TIMEOUT"]), len(shown["CRASHED_TOO_OFTEN"])) == (2, 4, 2)
    assert await _ids(env, error_code="shop.other") == set()
    for code, ids in shown.items():
        assert await _ids(env, error_code=code) == ids, code
        assert await _ids(env, error_code=code, queue="elsewhere") == set()
    timed_out = sorted(shown["JOB_TIMEOUT"], reverse=True)
    page = await env.driver.list(ListQuery(error_code="JOB_TIMEOUT", limit=3))
    assert [item.id for item in page.items] == timed_out[:3]
    last = await env.driver.list(ListQuery(error_code="JOB_TIMEOUT", limit=3, before=page.next_after))
    assert [item.id for item in last.items] == timed_out[3:]
    back = await env.driver.list(ListQuery(error_code="JOB_TIMEOUT", limit=3, after=last.newer_than))
    assert [item.id for item in back.items] == timed_out[:3]


async def past_deadline_after_failures(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    """End one while it waits whose attempts failed with the same code, and then were interrupted with no error."""
    token = (await env.running(**{"deadline": HOUR, **fields})).token
    error = ErrorInfo(type="JobTimeout", message="no", code="JOB_TIMEOUT", traceback="")
    await env.close_attempt(token, Retried(error=error, delay=timedelta()))
    await env.driver.promote()
    again = await env.claim_one(await env.register())
    await env.close_attempt(again.token, Interrupted(cause=CAUSE_DRAIN))
    await env.advance(2 * HOUR)
    assert len(await env.driver.expire()) == 1
    return token.job_id


async def test_an_error_that_a_later_end_has_cleared_is_not_found(env: DriverEnv) -> None:
    error = ErrorInfo(type="ValueError", message="no", code="JOB_TIMEOUT", traceback="")
    held = await env.running()
    await env.close_attempt(held.token, DeadLettered(error=error, reason=DeadReason.TERMINAL))
    await env.driver.retry(held.token.job_id)
    assert await _ids(env, error_code="JOB_TIMEOUT") == {held.token.job_id}
    again = await env.claim_one(await env.register())
    await env.close_attempt(again.token, Completed(result="1"))
    assert await _ids(env, error_code="JOB_TIMEOUT") == set()


@pytest.mark.parametrize("states", [frozenset(), frozenset({State.READY}), frozenset({State.DELAYED, State.DONE})])
async def test_what_is_counted_is_what_fits(env: DriverEnv, states: frozenset[State]) -> None:
    await env.driver.enqueue_many([new_job() for _ in range(5)])
    await env.driver.enqueue_many([new_job(delay=MINUTE) for _ in range(2)])
    expected = {0: 7, 1: 5, 2: 2}[len(states)]
    query = ListQuery(states=states, limit=1)
    assert await env.driver.count_jobs(query) == JobCount(value=expected, is_capped=False)
    assert await env.driver.count_jobs(replace(query, queue="elsewhere")) == JobCount(value=0, is_capped=False)


async def test_a_count_ends_where_nobody_reads_on(env: DriverEnv) -> None:
    await env.driver.enqueue_many([new_job() for _ in range(10_001)])
    for query in (ListQuery(), ListQuery(states=frozenset({State.READY})), ListQuery(queue="default")):
        assert await env.driver.count_jobs(query) == JobCount(value=10_000, is_capped=True)
