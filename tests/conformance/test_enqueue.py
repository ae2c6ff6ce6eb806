from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import IdempotencyMismatch, JobDuplicate, RequestInvalid
from app.domain.job import Counters, Enqueued, RunId
from app.domain.outcome import Completed
from app.domain.state import State
from tests.support.drivers import DriverEnv, new_id, new_job

HOUR = timedelta(hours=1)
EVERY_PLANE = '{"s": "\\u00e9 \U0001f600 \u6f22 \U0010fffd", "big": 1152921504606846977, "f": 1.5e300, "z": -0.0}'


async def test_a_new_job_is_ready_and_answers_with_its_own_id(env: DriverEnv) -> None:
    job = new_job()
    assert await env.driver.enqueue(job) == Enqueued(id=job.id, run_id=RunId(job.id), deduped=False)
    view = await env.describe(job.id)
    assert (view.state, view.state_reason, view.counters) == (State.READY, None, Counters())
    assert (view.created_at, view.started_at, view.finished_at, view.run_at) == (env.now(), None, None, None)
    assert (view.last_outcome, view.error, view.claim, view.result) == (None, None, None, None)


async def test_every_field_comes_back_as_it_was_sent(env: DriverEnv) -> None:
    job = new_job(
        "mail.send",
        payload=EVERY_PLANE,
        queue="mail",
        priority=2,
        tenant="acme",
        max_attempts=7,
        max_crashes=2,
        key="order:1",
        timeout=timedelta(milliseconds=1500),
        parent_id=new_id(),
        enqueued_by="key:ci",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tags=("a", "b"),
        meta='{"x": 1}',
    )
    await env.driver.enqueue(job)
    view = await env.describe(job.id)
    assert (view.name, view.payload, view.queue, view.priority) == (job.name, EVERY_PLANE, "mail", 2)
    assert (view.tenant, view.max_attempts, view.max_crashes, view.key) == ("acme", 7, 2, "order:1")
    assert (view.timeout_ms, view.parent_id, view.enqueued_by) == (1500, job.parent_id, "key:ci")
    assert (view.traceparent, view.tags, view.meta) == (job.traceparent, ("a", "b"), '{"x": 1}')


@pytest.mark.parametrize("beside", [{}, {"key": "k"}], ids=["alone", "beside a key"])
async def test_every_job_of_a_batch_keeps_its_own_fields(env: DriverEnv, beside: dict[str, str]) -> None:
    batch = [
        new_job(),
        new_job(
            "mail.send",
            payload='{"n": 1}',
            queue="mail",
            priority=2,
            tenant="acme",
            max_attempts=7,
            max_crashes=2,
            timeout=timedelta(milliseconds=1500),
            parent_id=new_id(),
            enqueued_by="key:ci",
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            tags=("a", 'b", \\ {}'),
            meta='{"x": 1}',
        ),
        new_job(priority=9, tags=("c",)),
    ]
    await env.driver.enqueue_many([*batch, new_job(**beside)])
    for job in batch:
        view = await env.describe(job.id)
        assert (view.name, view.payload, view.queue, view.priority) == (job.name, job.payload, job.queue, job.priority)
        assert (view.tenant, view.max_attempts, view.max_crashes) == (job.tenant, job.max_attempts, job.max_crashes)
        assert view.timeout_ms == (None if job.timeout is None else 1500)
        assert (view.parent_id, view.enqueued_by, view.traceparent) == (job.parent_id, job.enqueued_by, job.traceparent)
        assert (view.tags, view.meta, view.key) == (job.tags, job.meta, None)


@pytest.mark.parametrize("payload", ["{}", '"x"', "null", "[ 1,  2 ]", '{"a":1,"A":2}', "1" + "0" * 400])
async def test_payloads_are_kept_byte_for_byte(env: DriverEnv, payload: str) -> None:
    assert (await env.describe(await env.enqueue(payload=payload))).payload == payload


async def test_a_delayed_job_waits_until_its_time(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=HOUR)
    view = await env.describe(job_id)
    assert (view.state, view.state_reason, view.run_at) == (State.DELAYED, "scheduled", env.now() + HOUR)
    assert await env.claim(await env.register()) == ()


async def test_run_at_in_the_future_waits_and_in_the_past_does_not(env: DriverEnv) -> None:
    later = await env.enqueue(run_at=env.now() + HOUR)
    at_once = await env.enqueue(run_at=env.now() - HOUR)
    now = await env.enqueue(run_at=env.now())
    views = [await env.describe(job_id) for job_id in (later, at_once, now)]
    assert [view.state for view in views] == [State.DELAYED, State.READY, State.READY]
    assert [view.run_at for view in views] == [env.now() + HOUR, env.now() - HOUR, env.now()]


async def test_repeating_the_same_id_is_answered_like_the_first_time(env: DriverEnv) -> None:
    job = new_job(key="k", dedupe_for=HOUR)
    first = await env.driver.enqueue(job)
    assert await env.driver.enqueue(job) == first
    await env.close_attempt((await env.claim_one(await env.register())).token, Completed())
    assert await env.driver.enqueue(job) == first
    assert (await env.driver.stats()).by_state[State.DONE] == 1
    assert (await env.driver.stats()).by_state.get(State.READY, 0) == 0


async def test_repeating_the_same_id_without_a_key_makes_no_second_job(env: DriverEnv) -> None:
    job = new_job(delay=HOUR)
    first = await env.driver.enqueue(job)
    assert await env.driver.enqueue(job) == first
    assert first.deduped is False
    assert (await env.driver.stats()).by_state[State.DELAYED] == 1


async def test_repeating_an_id_is_answered_as_its_own_though_its_key_went_to_another_job(env: DriverEnv) -> None:
    job = new_job(key="k")
    first = await env.driver.enqueue(job)
    await env.close_attempt((await env.claim_one(await env.register())).token, Completed())
    other = await env.enqueue(key="k")
    assert await env.driver.enqueue(job) == first
    assert (await env.enqueue_again(key="k")).id == other


# --- batches


async def test_a_batch_answers_in_order(env: DriverEnv) -> None:
    jobs = [new_job(priority=9 - index, delay=HOUR if index % 2 else None) for index in range(6)]
    answers = await env.driver.enqueue_many(jobs)
    assert [answer.id for answer in answers] == [job.id for job in jobs]
    assert not any(answer.deduped for answer in answers)
    by_state = (await env.driver.stats()).by_state
    assert (by_state[State.READY], by_state[State.DELAYED]) == (3, 3)


async def test_an_empty_batch_is_nothing(env: DriverEnv) -> None:
    assert await env.driver.enqueue_many(()) == ()


async def test_a_batch_dedupes_against_the_store_and_within_itself(env: DriverEnv) -> None:
    live = await env.enqueue(key="a")
    first, again = new_job(key="b"), new_job(key="b")
    answers = await env.driver.enqueue_many([new_job(key="a"), first, again, new_job()])
    assert [answer.deduped for answer in answers] == [True, False, True, False]
    assert [answer.id for answer in answers][:3] == [live, first.id, first.id]
    assert (await env.driver.stats()).by_state[State.READY] == 3


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"on_conflict": "error"}, JobDuplicate), ({"fingerprint": 2}, IdempotencyMismatch)],
    ids=["duplicate", "mismatch"],
)
async def test_one_refused_job_refuses_the_batch_and_names_its_index(
    env: DriverEnv, fields: dict[str, Any], error: type[JobDuplicate | IdempotencyMismatch]
) -> None:
    live = await env.enqueue(key="taken", fingerprint=1)
    batch = [new_job(), new_job(key="free"), new_job(key="taken", **{"fingerprint": 1, **fields}), new_job()]
    with pytest.raises(error) as refused:
        await env.driver.enqueue_many(batch)
    assert refused.value.details["index"] == 2
    assert str(refused.value.details["existing_id"]) == str(live)
    for job in batch:
        assert await env.driver.describe(job.id) is None
    assert (await env.enqueue_again(key="free")).deduped is False


async def test_a_duplicate_within_a_batch_can_refuse_it(env: DriverEnv) -> None:
    first = new_job(key="k")
    with pytest.raises(JobDuplicate) as refused:
        await env.driver.enqueue_many([first, new_job(key="k", on_conflict="error")])
    assert refused.value.details["index"] == 1
    assert str(refused.value.details["existing_id"]) == str(first.id)
    assert await env.driver.describe(first.id) is None


async def test_repeating_a_batch_is_answered_like_the_first_time(env: DriverEnv) -> None:
    batch = [new_job(), new_job(key="k"), new_job(delay=HOUR)]
    first = await env.driver.enqueue_many(batch)
    assert await env.driver.enqueue_many(batch) == first
    assert sum((await env.driver.stats()).by_state.values()) == 3


async def test_a_batch_over_the_limit_is_refused_whole(env: DriverEnv) -> None:
    job = new_job()
    with pytest.raises(RequestInvalid, match="50000"):
        await env.driver.enqueue_many([job] * 50_001)
    assert await env.driver.describe(job.id) is None
