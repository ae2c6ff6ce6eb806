"""A bulk run now: what a run now does to one job, to each; runs that sleep among them, and no others that wait."""

from __future__ import annotations

from app.domain.audit import AuditQuery
from app.domain.bulk import BulkAction, BulkVerdict
from app.domain.state import State
from tests.conformance.runs import HOUR, SECOND, a_sleep, an_event, enlist, state_of, suspend, suspended, waits
from tests.support.bulk import a_bulk, done, store_of
from tests.support.drivers import DriverEnv

RUN_NOW = BulkAction.RUN_NOW


async def test_sleeps_of_suspended_runs_end_as_by_a_run_now(env: DriverEnv) -> None:
    worker = await enlist(env)
    asleep = await suspended(env, a_sleep(), a_sleep("rest", 1, delay=2 * HOUR), worker=worker)
    delayed = await env.enqueue(delay=HOUR)
    view = await done(store_of(env), a_bulk(RUN_NOW, reason="now"))
    assert (view.selected, view.done) == (2, 2)
    items = {item.job_id: item.detail for item in await store_of(env).items(view.id)}
    assert items == {asleep.token.job_id: "sleep_ended", delayed: "made_ready"}
    history = await env.driver.history(asleep.token.job_id, asleep.run_id)
    assert sorted(step.name for step in history.steps) == ["nap", "rest"]
    assert await waits(env, asleep.token.job_id) == []
    order = [job.token.job_id for job in await env.claim(worker)]
    assert order == [asleep.token.job_id, delayed], "resumed work goes before new"
    audit = (await env.driver.audit(AuditQuery(action="job.run_now"))).items
    found = {(row.target, row.outcome, row.reason) for row in audit}
    assert found == {(str(asleep.token.job_id), "sleep_ended", "now"), (str(delayed), "made_ready", "now")}


async def test_runs_that_sleep_not_are_neither_counted_nor_hit(env: DriverEnv) -> None:
    store, worker = store_of(env), await enlist(env)
    waiting = (await suspended(env, an_event(delay=HOUR), worker=worker)).token.job_id
    both = (await suspended(env, an_event(key="2"), a_sleep(number=1), worker=worker)).token.job_id
    assert await store.count(a_bulk(RUN_NOW)) == await store.count(a_bulk(RUN_NOW, ids=[waiting, both])) == 1
    view = await done(store, a_bulk(RUN_NOW, ids=[waiting, both]))
    assert (view.done, view.failed) == (1, 1)
    found = {item.job_id: (item.verdict, item.code, item.detail) for item in await store.items(view.id)}
    assert found == {
        waiting: (BulkVerdict.FAILED, "JOB_STATE_CONFLICT", "suspended"),
        both: (BulkVerdict.DONE, None, "sleep_ended"),
    }
    assert (await state_of(env, waiting), await state_of(env, both)) == (State.SUSPENDED, State.READY)


async def test_a_run_that_has_slept_since_the_count_is_said_to_have_changed(env: DriverEnv) -> None:
    asleep = await suspended(env, a_sleep(delay=SECOND))
    made = await store_of(env).make(a_bulk(RUN_NOW, expected_count=1))
    await env.advance(SECOND)
    await env.driver.wake()
    await suspend(env, await env.claim_one(await enlist(env)), an_event(delay=HOUR))
    step = await store_of(env).step(only=made.id)
    assert step is not None
    assert (step.changed, step.done) == (1, 0)
    assert [(each.code, each.detail) for each in await store_of(env).items(made.id)] == [
        ("JOB_STATE_CONFLICT", "suspended")
    ]
    assert await state_of(env, asleep.token.job_id) is State.SUSPENDED
