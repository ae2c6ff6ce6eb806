from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from app.domain.errors import IdempotencyMismatch, JobDuplicate
from app.domain.job import Enqueued, RunId
from app.domain.outcome import Completed
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.conformance.endings import Ending, completed, every_ending
from tests.support.drivers import DriverEnv, new_job

HOUR = timedelta(hours=1)


async def test_a_live_key_gives_the_live_job(env: DriverEnv) -> None:
    first = await env.enqueue(key="order:1")
    second = new_job(key="order:1")
    assert await env.driver.enqueue(second) == Enqueued(id=first, run_id=RunId(first), deduped=True)
    assert await env.driver.describe(second.id) is None


async def test_a_key_belongs_to_one_name_and_one_tenant(env: DriverEnv) -> None:
    await env.enqueue("a.job", key="k", tenant="x")
    assert (await env.enqueue_again("b.job", key="k", tenant="x")).deduped is False
    assert (await env.enqueue_again("a.job", key="k", tenant="y")).deduped is False
    assert (await env.enqueue_again("a.job", key="k", tenant="x")).deduped is True


async def test_on_conflict_error_names_the_live_job(env: DriverEnv) -> None:
    first = await env.enqueue(key="k")
    with pytest.raises(JobDuplicate) as refused:
        await env.enqueue_again(key="k", on_conflict="error")
    assert str(refused.value.details["existing_id"]) == str(first)


@pytest.mark.parametrize("on_conflict", ["return", "error"])
async def test_the_same_key_with_another_payload_is_a_mismatch(env: DriverEnv, on_conflict: str) -> None:
    first = await env.enqueue(key="k", fingerprint=1)
    with pytest.raises(IdempotencyMismatch) as refused:
        await env.enqueue_again(key="k", fingerprint=2, on_conflict=on_conflict)
    assert str(refused.value.details["existing_id"]) == str(first)


@pytest.mark.parametrize("fingerprint", [2**63 - 1, -(2**63)])
async def test_fingerprints_have_the_whole_signed_range(env: DriverEnv, fingerprint: int) -> None:
    await env.enqueue(key="k", fingerprint=fingerprint)
    assert (await env.enqueue_again(key="k", fingerprint=fingerprint)).deduped


@every_ending
async def test_a_key_is_free_once_its_job_has_ended(env: DriverEnv, ending: Ending) -> None:
    await ending(env, {"key": "k"})
    assert (await env.enqueue_again(key="k", fingerprint=9)).deduped is False


@every_ending
async def test_a_window_keeps_the_key_of_an_ended_job(env: DriverEnv, ending: Ending) -> None:
    enqueued_at = env.now()
    job_id = await ending(env, {"key": "k", "dedupe_for": HOUR})
    answer = await env.enqueue_again(key="k")
    assert answer == Enqueued(id=job_id, run_id=RunId(job_id), deduped=True, key_expires_at=enqueued_at + HOUR)
    with pytest.raises(IdempotencyMismatch):
        await env.enqueue_again(key="k", fingerprint=9)
    with pytest.raises(JobDuplicate):
        await env.enqueue_again(key="k", on_conflict="error")
    await env.advance(HOUR)
    assert (await env.enqueue_again(key="k", fingerprint=9)).deduped is False


async def test_a_window_counts_from_the_enqueue_and_is_shown(env: DriverEnv) -> None:
    job = new_job(key="k", dedupe_for=HOUR)
    answer = await env.driver.enqueue(job)
    assert answer.key_expires_at == env.now() + HOUR
    assert (await env.describe(job.id)).key_expires_at == env.now() + HOUR


async def test_a_key_stays_taken_past_its_window_while_the_job_lives(env: DriverEnv) -> None:
    job_id = await env.enqueue(key="k", dedupe_for=HOUR)
    await env.advance(2 * HOUR)
    answer = await env.enqueue_again(key="k")
    assert (answer.id, answer.deduped) == (job_id, True)
    await env.close_attempt((await env.claim_one(await env.register())).token, Completed())
    assert (await env.enqueue_again(key="k")).deduped is False


async def test_a_window_outlives_the_purge(env: DriverEnv) -> None:
    job_id = await completed(env, {"key": "k", "dedupe_for": 3 * HOUR})
    await env.advance(HOUR)
    assert await env.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta(minutes=1))) == 1
    assert await env.driver.describe(job_id) is None
    answer = await env.enqueue_again(key="k")
    assert (answer.id, answer.deduped) == (job_id, True)
    await env.advance(2 * HOUR)
    assert (await env.enqueue_again(key="k")).deduped is False


async def test_repeating_the_id_of_a_purged_job_within_its_window_makes_no_second_job(env: DriverEnv) -> None:
    job = new_job(key="k", dedupe_for=3 * HOUR)
    first = await env.driver.enqueue(job)
    await env.driver.cancel(job.id, reason="stop")
    await env.advance(HOUR)
    assert await env.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=timedelta(minutes=1))) == 1
    assert await env.driver.enqueue(job) == first
    assert await env.driver.describe(job.id) is None


async def test_a_key_taken_over_after_its_window_belongs_to_the_new_job_alone(env: DriverEnv) -> None:
    old = await completed(env, {"key": "k", "dedupe_for": HOUR})
    await env.advance(2 * HOUR)
    new = await env.enqueue(key="k", dedupe_for=HOUR)
    assert (await env.describe(old)).key_expires_at is None
    assert (await env.describe(new)).key_expires_at == env.now() + HOUR
    assert (await env.enqueue_again(key="k")).id == new


async def test_many_callers_of_one_key_get_one_job(env: DriverEnv) -> None:
    answers = await asyncio.gather(*(env.enqueue_again(key="k") for _ in range(20)))
    assert len({answer.id for answer in answers}) == 1
    assert sum(not answer.deduped for answer in answers) == 1
    assert (await env.driver.stats()).by_state[State.READY] == 1


# --- sources


async def test_a_republished_source_gives_the_first_job(env: DriverEnv) -> None:
    source = uuid4()
    first = await env.enqueue(source_id=source)
    answer = await env.enqueue_again(source_id=source)
    assert answer == Enqueued(id=first, run_id=RunId(first), deduped=True)
    assert sum((await env.driver.stats()).by_state.values()) == 1


@every_ending
async def test_a_source_stays_known_when_its_job_has_ended(env: DriverEnv, ending: Ending) -> None:
    source = uuid4()
    first = await ending(env, {"source_id": source})
    answer = await env.enqueue_again(source_id=source)
    assert (answer.id, answer.deduped) == (first, True)


async def test_a_source_stays_known_when_its_job_is_purged(env: DriverEnv) -> None:
    source = uuid4()
    first = await completed(env, {"source_id": source})
    await env.advance(HOUR)
    assert await env.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta(minutes=1))) == 1
    answer = await env.enqueue_again(source_id=source)
    assert (answer.id, answer.deduped) == (first, True)
    assert await env.driver.describe(first) is None


async def test_a_source_that_found_its_key_taken_finds_that_job_again(env: DriverEnv) -> None:
    source = uuid4()
    token = (await env.running(key="k")).token
    assert (await env.enqueue_again(key="k", source_id=source)).deduped
    await env.close_attempt(token, Completed())
    answer = await env.enqueue_again(key="k", source_id=source)
    assert (answer.id, answer.deduped) == (token.job_id, True)


async def test_one_source_twice_in_a_batch_makes_one_job(env: DriverEnv) -> None:
    source = uuid4()
    first, again = new_job(source_id=source), new_job(source_id=source)
    answers = await env.driver.enqueue_many([first, again])
    assert [(answer.id, answer.deduped) for answer in answers] == [(first.id, False), (first.id, True)]
