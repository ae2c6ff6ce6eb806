"""Enqueues that meet: one job per key however many ask, and whoever loses a race reads again until it has an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from app.domain.errors import IdempotencyMismatch, JobDuplicate
from app.domain.job import Enqueued, JobId, NewJob, key_hash
from app.domain.outcome import Completed
from app.drivers.postgres import enqueue as enqueue_module
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from tests.postgres.arena import Arena
from tests.support.drivers import NAME, new_id, new_job

pytestmark = pytest.mark.postgres

KEYS = ("a", "b", "c")


@pytest.fixture
async def crowd(arena: Arena, database_url: str) -> AsyncIterator[PostgresDriver]:
    """A driver with a connection for each of ten callers at a time."""
    engine = create_engine(database_url, pool_size=10)
    driver = PostgresDriver(engine)
    yield driver
    await driver.close()
    await engine.dispose()


@pytest.fixture(autouse=True)
async def _known_name(arena: Arena) -> None:
    """The name has its number already: a seat in an open transaction would make others wait for that."""
    await arena.fetch("insert into outlast.job_name(name) values ($1)", NAME)


def by_key(answers: list[Enqueued], jobs: list[NewJob]) -> dict[str, list[Enqueued]]:
    found: dict[str, list[Enqueued]] = {}
    for job, answer in zip(jobs, answers, strict=True):
        found.setdefault(job.key or "", []).append(answer)
    return found


async def envelopes(arena: Arena) -> int:
    (row,) = await arena.fetch("select count(*) from outlast.job")
    return int(row[0])


async def test_a_hundred_enqueues_over_few_keys_make_one_job_each(arena: Arena, crowd: PostgresDriver) -> None:
    jobs = [new_job(key=KEYS[number % len(KEYS)]) for number in range(100)]
    answers = await asyncio.gather(*(crowd.enqueue(job) for job in jobs))
    for shared in by_key(answers, jobs).values():
        assert len({answer.id for answer in shared}) == 1
        assert Counter(answer.deduped for answer in shared)[False] == 1
    assert await envelopes(arena) == len(KEYS)


async def test_batches_that_take_the_same_keys_in_other_orders_neither_deadlock_nor_double(
    arena: Arena, crowd: PostgresDriver
) -> None:
    keys = [f"key-{number}" for number in range(30)]
    batches = [[new_job(key=key) for key in (keys if turn % 2 else reversed(keys))] for turn in range(10)]
    answers = await asyncio.gather(*(crowd.enqueue_many(batch) for batch in batches))
    jobs = [job for batch in batches for job in batch]
    for shared in by_key([answer for batch in answers for answer in batch], jobs).values():
        assert Counter(answer.deduped for answer in shared)[False] == 1
        assert len({answer.id for answer in shared}) == 1
    assert await envelopes(arena) == len(keys)


async def test_a_batch_takes_its_keys_in_the_order_of_their_hashes(arena: Arena) -> None:
    low, high = sorted(("a", "b"), key=lambda key: key_hash("default", NAME, key).int)
    async with arena.holding() as other:
        await other.enqueue(key=low)
        batch = await arena.start(lambda seat: seat.driver.enqueue_many([new_job(key=high), new_job(key=low)]))
        await batch.is_blocked_by(other)
        # Nothing above the key it waits for is taken yet: whoever holds that one need never wait for the batch.
        free = await arena.at_once(lambda seat: seat.enqueue_again(key=high))
        await other.commit()
    assert not free.deduped
    assert [answer.deduped for answer in await batch.result()] == [True, True]


async def test_while_keys_are_freed_every_answer_is_a_job_that_was_there(arena: Arena, crowd: PostgresDriver) -> None:
    worker = await arena.register()
    jobs = [new_job(key=KEYS[number % len(KEYS)]) for number in range(100)]
    done = asyncio.Event()

    async def work() -> int:
        settled = 0
        while not done.is_set():
            for claim in await arena.claim(worker):
                await arena.close_attempt(claim.token, Completed())
                settled += 1
        return settled

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        answers = await asyncio.gather(*(crowd.enqueue(job) for job in jobs))
        done.set()
    new = {answer.id for answer in answers if not answer.deduped}
    assert {answer.id for answer in answers} == new
    assert await envelopes(arena) == len(new)
    assert working.result() <= len(new)
    (row,) = await arena.fetch("select count(*) from outlast.live_key")
    (left,) = await arena.fetch("select (select count(*) from outlast.ready) + (select count(*) from outlast.running)")
    assert row[0] == left[0]


async def test_an_enqueue_behind_one_that_commits_gives_its_job(arena: Arena) -> None:
    async with arena.holding() as first:
        winner = await first.enqueue(key="k")
        second = await arena.start(lambda seat: seat.enqueue_again(key="k"))
        await second.is_blocked_by(first)
        await first.commit()
    answer = await second.result()
    assert (answer.id, answer.deduped) == (winner, True)


async def test_an_enqueue_behind_one_that_rolls_back_makes_its_own(arena: Arena) -> None:
    mine = new_id()
    async with arena.holding() as first:
        await first.enqueue(key="k")
        second = await arena.start(lambda seat: seat.enqueue_again(key="k", id=mine))
        await second.is_blocked_by(first)
        await first.rollback()
    answer = await second.result()
    assert (answer.id, answer.deduped) == (mine, False)
    assert await envelopes(arena) == 1


async def test_refusals_are_decided_after_the_wait(arena: Arena) -> None:
    async with arena.holding() as first:
        winner = await first.enqueue(key="k", fingerprint=1)
        mismatch = await arena.start(lambda seat: seat.enqueue_again(key="k", fingerprint=2))
        duplicate = await arena.start(lambda seat: seat.enqueue_again(key="k", fingerprint=1, on_conflict="error"))
        await mismatch.is_blocked_by(first)
        await duplicate.is_blocked_by(first)
        await first.commit()
    with pytest.raises(IdempotencyMismatch) as mismatched:
        await mismatch.result()
    with pytest.raises(JobDuplicate) as duplicated:
        await duplicate.result()
    assert mismatched.value.details["existing_id"] == duplicated.value.details["existing_id"] == winner


async def test_a_key_past_its_window_is_taken_over_by_one(arena: Arena, crowd: PostgresDriver) -> None:
    first = (await arena.running(key="k", dedupe_for=timedelta(minutes=1))).token
    await arena.close_attempt(first, Completed())
    assert (await arena.enqueue_again(key="k")).id == first.job_id
    await arena.advance(timedelta(minutes=1))
    answers = await asyncio.gather(*(crowd.enqueue(new_job(key="k")) for _ in range(20)))
    (taken,) = {answer.id for answer in answers}
    assert taken != first.job_id
    assert Counter(answer.deduped for answer in answers)[False] == 1


async def test_a_takeover_behind_another_one_gives_its_job(arena: Arena) -> None:
    token = (await arena.running(key="k", dedupe_for=timedelta(minutes=1))).token
    await arena.close_attempt(token, Completed())
    await arena.advance(timedelta(minutes=1))
    async with arena.holding() as first:
        winner = await first.enqueue(key="k")
        second = await arena.start(lambda seat: seat.enqueue_again(key="k"))
        await second.is_blocked_by(first)
        await first.commit()
    assert (await second.result()).id == winner


async def test_one_id_sent_many_times_at_once_is_one_job(arena: Arena, crowd: PostgresDriver) -> None:
    job = new_job(key="k", dedupe_for=timedelta(minutes=1))
    plain = new_job()
    answers = await asyncio.gather(*(crowd.enqueue(job) for _ in range(10)), *(crowd.enqueue(plain) for _ in range(10)))
    assert Counter((answer.id, answer.deduped) for answer in answers) == {(job.id, False): 10, (plain.id, False): 10}
    assert {answer.key_expires_at for answer in answers[:10]} == {arena.now() + timedelta(minutes=1)}
    assert await envelopes(arena) == 2


async def test_an_id_sent_again_after_its_job_ended_is_still_that_job(arena: Arena) -> None:
    job = new_job(key="k")
    await arena.driver.enqueue(job)
    (claim,) = await arena.claim(await arena.register())
    await arena.close_attempt(claim.token, Completed())
    again = await arena.driver.enqueue(job)
    assert (again.id, again.deduped) == (job.id, False)
    assert await envelopes(arena) == 1
    assert await arena.key_holder("k") is None


async def test_one_source_sent_many_times_at_once_is_one_job(arena: Arena, crowd: PostgresDriver) -> None:
    source = uuid4()
    jobs = [new_job(source_id=source, key=None if number % 2 else "k") for number in range(20)]
    answers = await asyncio.gather(*(crowd.enqueue(job) for job in jobs))
    assert len({answer.id for answer in answers}) == 1
    assert Counter(answer.deduped for answer in answers)[False] == 1
    assert await envelopes(arena) == 1


async def test_a_batch_that_loses_a_source_and_wins_the_key_gives_the_key_back(arena: Arena) -> None:
    source = uuid4()
    async with arena.holding() as first:
        winner = await first.enqueue(source_id=source)
        second = await arena.start(lambda seat: seat.enqueue_again(source_id=source, key="k"))
        await second.is_blocked_by(first)
        await first.commit()
    assert (await second.result()).id == winner
    assert await _holder(arena, "k") is None


async def test_a_refused_batch_leaves_nothing_behind(arena: Arena) -> None:
    await arena.enqueue(key="k", fingerprint=1)
    jobs = [new_job(key="free"), new_job(key="k", fingerprint=2), new_job()]
    with pytest.raises(IdempotencyMismatch) as refused:
        await arena.driver.enqueue_many(jobs)
    assert refused.value.details["index"] == 1
    assert await envelopes(arena) == 1
    assert await _holder(arena, "free") is None


@pytest.mark.timeout(60)
async def test_fifty_thousand_jobs_are_one_batch(arena: Arena) -> None:
    jobs = [new_job(key=None if number % 10 else f"key-{number}") for number in range(50_000)]
    answers = await arena.driver.enqueue_many(jobs)
    assert [answer.id for answer in answers] == [job.id for job in jobs]
    rows = await arena.fetch("select job_id from outlast.ready order by queue, rank, seq")
    assert [UUID(bytes=row[0].bytes) for row in rows] == [job.id for job in jobs]


@pytest.mark.parametrize(
    ("statement", "fields"), [("ENQUEUE_PLAIN", {}), ("ENQUEUE", {"key": "k"})], ids=["short", "whole"]
)
async def test_no_number_is_drawn_before_the_transaction_has_its_id(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, statement: str, fields: dict[str, str]
) -> None:
    # The statement stalls where it takes its transaction id: whoever reads a number can then be sure that every lower
    # one belongs to a transaction that was in progress by then.
    whole = getattr(enqueue_module, statement)
    stalling = whole.replace("pg_current_xact_id()", "pg_advisory_xact_lock_shared(42)::text")
    monkeypatch.setattr(enqueue_module, statement, stalling)
    await arena.enqueue()
    async with arena.holding() as other:
        await other.connection.execute("select pg_advisory_xact_lock(42)")
        before = await arena.fetch("select last_value from outlast.token_seq")
        stalled = await arena.start(lambda seat: seat.enqueue(**fields))
        await stalled.is_blocked_by(other)
        assert await arena.fetch("select last_value from outlast.token_seq") == before
        await other.commit()
    assert await arena.bucket(await stalled.result()) == "ready"


async def _holder(arena: Arena, key: str) -> JobId | None:
    rows = await arena.fetch("select job_id from outlast.live_key where hash = $1", key_hash("default", NAME, key))
    return JobId(rows[0][0]) if rows else None
