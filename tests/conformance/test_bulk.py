"""Bulk operations in a store: what is counted, chosen, done and left alone. Once per driver."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from app.domain.bulk import BulkAction, BulkState, BulkVerdict, JobFilter
from app.domain.errors import CountChanged, RequestInvalid
from app.domain.job import JobId
from app.domain.outcome import Completed
from app.domain.state import State
from tests.support.bulk import a_bulk, dead, done, store_of, worked_off
from tests.support.drivers import DriverEnv

CANCEL, RETRY, RELEASE = BulkAction.CANCEL, BulkAction.RETRY, BulkAction.RELEASE
HOUR = timedelta(hours=1)
OTHER = "other.job"


async def states(env: DriverEnv, *ids: JobId) -> list[State]:
    return [(await env.describe(job_id)).state for job_id in ids]


async def verdicts(env: DriverEnv, bulk_id: object) -> list[tuple[BulkVerdict | None, str | None, str | None]]:
    items = await store_of(env).items(bulk_id)  # type: ignore[arg-type] # an operation's id
    return [(item.verdict, item.code, item.detail) for item in items]


# --- what is chosen


async def test_jobs_are_counted_by_every_field_of_the_filter(env: DriverEnv) -> None:
    store = store_of(env)
    start = env.now()
    await env.enqueue()
    await env.enqueue(OTHER)
    await env.enqueue(queue="mail")
    await env.enqueue(tenant="berlin")
    await env.enqueue(delay=HOUR)
    await env.advance(HOUR)
    await env.enqueue()

    async def count(*wanted: State, name: str | None = None, tenant: str | None = None, **jobs: object) -> int:
        return await store.count(
            a_bulk(CANCEL, *wanted, name=name, tenant=tenant, jobs=JobFilter(**jobs))  # type: ignore[arg-type] # fields
        )

    assert await count() == 6
    assert await count(State.READY) == 5
    assert await count(State.DELAYED) == 1
    assert await count(State.READY, State.DELAYED) == 6
    assert await count(State.RUNNING, State.SUSPENDED, State.HELD) == 0
    assert await count(name=OTHER) == 1
    assert await count(name="nobody.knows") == 0
    assert await count(queue="mail") == 1
    assert await count(tenant="berlin") == 1
    assert await count(created_after=start + HOUR) == 1
    assert await count(created_before=start + HOUR) == 5
    assert await count(created_after=start, created_before=start + HOUR) == 5


async def test_without_states_an_action_takes_those_it_applies_to(env: DriverEnv) -> None:
    store = store_of(env)
    died, waits = await dead(env), await env.enqueue()
    assert await store.count(a_bulk(RETRY)) == 1
    assert await store.count(a_bulk(CANCEL)) == 1
    view = await done(store, a_bulk(RETRY))
    assert view.jobs.states == {State.DEAD, State.CANCELLED}
    assert await states(env, died, waits) == [State.READY, State.READY]


async def test_ended_jobs_are_told_apart(env: DriverEnv) -> None:
    store = store_of(env)
    await dead(env)
    await env.driver.cancel(await env.enqueue(), reason="not needed")
    finished = await env.running()
    await env.close_attempt(finished.token, Completed())
    for wanted in (State.DEAD, State.CANCELLED, State.DONE):
        assert await store.count(a_bulk(BulkAction.DELETE, wanted)) == 1
    assert await store.count(a_bulk(BulkAction.DELETE, State.DEAD, State.DONE)) == 2
    assert await store.count(a_bulk(BulkAction.DELETE)) == 3


async def test_ids_are_counted_where_the_action_applies_and_all_answered(env: DriverEnv) -> None:
    store = store_of(env)
    died, foreign = await dead(env), await dead(env, tenant="berlin")
    waits, absent = await env.enqueue(), JobId(uuid4())
    bulk = a_bulk(RETRY, ids=[died, died, foreign, waits, absent], tenant="default")

    assert await store.count(bulk) == 1
    view = await done(store, bulk)

    assert (view.selected, view.done, view.changed, view.failed, view.left) == (4, 1, 0, 3, 0)
    found = {item.job_id: (item.verdict, item.code, item.detail) for item in await store.items(bulk.id)}
    assert found == {
        died: (BulkVerdict.DONE, None, None),
        foreign: (BulkVerdict.FAILED, "JOB_NOT_FOUND", None),
        waits: (BulkVerdict.FAILED, "JOB_STATE_CONFLICT", "ready"),
        absent: (BulkVerdict.FAILED, "JOB_NOT_FOUND", None),
    }
    assert await states(env, died, foreign, waits) == [State.READY, State.DEAD, State.READY]


@pytest.mark.parametrize("expected", [0, 1, 3])
async def test_another_number_than_expected_changes_nothing_and_says_both(env: DriverEnv, expected: int) -> None:
    store = store_of(env)
    first, second = await dead(env), await dead(env)
    bulk = a_bulk(RETRY, expected_count=expected)
    with pytest.raises(CountChanged) as refused:
        await store.make(bulk)
    assert (refused.value.details["expected"], refused.value.details["count"]) == (expected, 2)
    assert await store.find(bulk.id) is None
    assert await store.step() is None
    assert await states(env, first, second) == [State.DEAD, State.DEAD]
    with pytest.raises(CountChanged):
        await store.make(a_bulk(RETRY, ids=[first], expected_count=2))


async def test_the_expected_number_goes_through(env: DriverEnv) -> None:
    store = store_of(env)
    first, _ = await dead(env), await dead(env)
    assert (await store.make(a_bulk(RETRY, expected_count=2))).selected == 2
    assert (await store.make(a_bulk(RETRY, ids=[first], expected_count=1))).selected == 1


@pytest.mark.parametrize("action", [RETRY, BulkAction.RUN_NOW])
async def test_an_expected_number_of_ids_is_of_what_is_there(env: DriverEnv, action: BulkAction) -> None:
    store = store_of(env)
    fits = await dead(env) if action is RETRY else await env.enqueue(delay=HOUR)
    none = a_bulk(action, ids=[JobId(uuid4()), await env.enqueue()], expected_count=0)
    made = await store.make(none)
    assert (made.selected, await store.items(none.id)) == (0, ())
    one = a_bulk(action, ids=[fits, *(none.ids or ())], expected_count=1)
    assert (await done(store, one)).done == 1
    assert [(item.job_id, item.verdict) for item in await store.items(one.id)] == [(fits, BulkVerdict.DONE)]


async def test_more_than_a_statement_selects_is_refused(env: DriverEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.domain import bulk  # noqa: PLC0415 - three modules that know the number
    from app.drivers.memory import bulk as memory  # noqa: PLC0415 - same
    from app.drivers.postgres import bulk_make  # noqa: PLC0415 - same

    for module in (bulk, memory, bulk_make):
        monkeypatch.setattr(module, "MOST_SELECTED", 2)
    store = store_of(env)
    for _ in range(4):
        await env.enqueue()
    assert await store.count(a_bulk(CANCEL)) == 3
    with pytest.raises(RequestInvalid, match="more than 2 jobs"):
        await store.make(a_bulk(CANCEL))
    with pytest.raises(CountChanged, match="4 jobs were expected and more than 2 fit"):
        await store.make(a_bulk(CANCEL, expected_count=4))


async def test_nothing_to_do_is_done_at_once(env: DriverEnv) -> None:
    store = store_of(env)
    made = await store.make(a_bulk(CANCEL))
    assert (made.state, made.selected, made.ended_at) == (BulkState.DONE, 0, env.now())
    assert await store.step() is None


async def test_an_operation_made_twice_under_one_id_is_one(env: DriverEnv) -> None:
    store = store_of(env)
    await env.enqueue()
    bulk = a_bulk(CANCEL)
    first = await store.make(bulk)
    await env.enqueue()
    assert await store.make(bulk) == first
    assert len(await store.items(bulk.id)) == 1


# --- what is done


async def test_a_bulk_cancel_ends_jobs_in_every_live_state_as_a_cancel_does(env: DriverEnv) -> None:
    store = store_of(env)
    running = await env.running(key="r")
    delayed = await env.enqueue(delay=HOUR, key="d")
    ready = await env.enqueue(key="a")
    view = await done(store, a_bulk(CANCEL, reason="stop"))

    assert (view.state, view.done, view.left) == (BulkState.DONE, 3, 0)
    ids = (running.token.job_id, delayed, ready)
    assert await states(env, *ids) == [State.CANCELLED] * 3
    assert {(await env.describe(job_id)).state_reason for job_id in ids} == {"stop"}
    assert {detail for _, _, detail in await verdicts(env, view.id)} == {"signalled", "cancelled_before_start"}
    (row,) = await env.ledger(running.token.job_id)
    assert (row.outcome.value, row.counted) == ("cancelled", False)
    assert (await env.describe(running.token.job_id)).counters.attempt == 0
    for key in ("r", "d", "a"):
        assert not (await env.enqueue_again(key=key)).deduped


async def test_a_reason_that_nobody_gave_names_who_asked(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    await done(store_of(env), a_bulk(CANCEL))
    assert (await env.describe(job_id)).state_reason == "cancelled by ada"


async def test_a_bulk_retry_gives_fresh_budgets_and_takes_the_keys_again(env: DriverEnv) -> None:
    store = store_of(env)
    first, second = await dead(env, key="a"), await dead(env, deadline=HOUR)
    view = await done(store, a_bulk(RETRY, State.DEAD))
    assert (view.done, view.failed) == (2, 0)
    for job_id in (first, second):
        shown = await env.describe(job_id)
        assert (shown.state, shown.counters.attempt, shown.counters.claim_no) == (State.READY, 0, 1)
        assert len(await env.ledger(job_id)) == 1
    assert (await env.enqueue_again(key="a")).id == first
    await env.advance(2 * HOUR)
    assert await env.driver.expire() == ()
    assert [job.deadline_in for job in await env.claim(await env.register())] == [None, None]


async def test_a_retry_whose_key_is_taken_is_refused_and_says_by_whom(env: DriverEnv) -> None:
    store = store_of(env)
    died, free = await dead(env, key="k"), await dead(env)
    holder = await env.enqueue(key="k")
    view = await done(store, a_bulk(RETRY, State.DEAD))
    assert (view.done, view.failed) == (1, 1)
    assert await states(env, died, free) == [State.DEAD, State.READY]
    (item,) = await store.items(view.id, verdicts=[BulkVerdict.FAILED])
    assert (item.job_id, item.code, item.detail) == (died, "JOB_DUPLICATE", str(holder))


async def test_of_dead_jobs_with_one_key_that_is_still_kept_its_holder_takes_it(env: DriverEnv) -> None:
    store = store_of(env)
    first = await dead(env, key="k")
    holder = await dead(env, key="k", dedupe_for=HOUR)
    view = await done(store, a_bulk(RETRY, State.DEAD))
    assert (view.done, view.failed) == (1, 1)
    assert await states(env, first, holder) == [State.DEAD, State.READY]
    (refused,) = await store.items(view.id, verdicts=[BulkVerdict.FAILED])
    assert (refused.job_id, refused.detail) == (first, str(holder))


async def test_of_dead_jobs_with_one_key_the_oldest_takes_it(env: DriverEnv) -> None:
    store = store_of(env)
    jobs = [await dead(env, key="k") for _ in range(3)]
    view = await done(store, a_bulk(RETRY, State.DEAD))
    assert (view.done, view.failed) == (1, 2)
    assert await states(env, *jobs) == [State.READY, State.DEAD, State.DEAD]
    refused = await store.items(view.id, verdicts=[BulkVerdict.FAILED])
    assert [(item.job_id, item.detail) for item in refused] == [(job_id, str(jobs[0])) for job_id in jobs[1:]]


# --- what has changed since


async def test_jobs_that_changed_since_are_reported_and_not_hit(env: DriverEnv) -> None:
    store = store_of(env)
    retried, purged, stays = await dead(env), await dead(env), await dead(env)
    made = await store.make(a_bulk(RETRY, State.DEAD))
    await env.driver.retry(retried)
    await env.driver.cancel(retried, reason="now cancelled")
    assert made.selected == 3

    steps = await worked_off(store, made)

    assert [(step.done, step.changed) for step in steps] == [(2, 1)]
    found = {item.job_id: (item.verdict, item.code, item.detail) for item in await store.items(made.id)}
    assert found == {
        retried: (BulkVerdict.CHANGED, "JOB_STATE_CONFLICT", "cancelled"),
        purged: (BulkVerdict.DONE, None, None),
        stays: (BulkVerdict.DONE, None, None),
    }
    assert await states(env, retried) == [State.CANCELLED]


async def test_a_job_that_came_later_is_not_one_of_them(env: DriverEnv) -> None:
    store = store_of(env)
    await env.enqueue()
    made = await store.make(a_bulk(CANCEL))
    later = await env.enqueue()
    await worked_off(store, made)
    assert await states(env, later) == [State.READY]


async def test_a_job_that_is_gone_has_changed(env: DriverEnv) -> None:
    from app.drivers.protocol import PurgeQuery  # noqa: PLC0415 - of this test alone

    store = store_of(env)
    await dead(env)
    made = await store.make(a_bulk(RETRY, State.DEAD))
    await env.advance(HOUR)
    assert await env.driver.purge(PurgeQuery(state=State.DEAD, older_than=timedelta(minutes=1))) == 1
    await worked_off(store, made)
    assert await verdicts(env, made.id) == [(BulkVerdict.CHANGED, "JOB_NOT_FOUND", None)]
