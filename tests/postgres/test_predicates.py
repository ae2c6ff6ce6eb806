"""Predicates whose absence only a rare case shows: a takeover behind another, a number that comes again, a lock's turn.

Each test is there for a mutant that nothing else noticed; see `docs/reference/mutants.md`.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from app.domain.job import NewJob
from app.domain.outcome import Completed
from app.drivers.postgres import enqueue_statements, names
from tests.postgres.arena import Arena
from tests.support.drivers import NAME, new_job

pytestmark = pytest.mark.postgres

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
async def _known_name(arena: Arena) -> None:
    """The name has its number already: a seat in an open transaction would make others wait for that."""
    await arena.fetch("insert into outlast.job_name(name) values ($1)", NAME)


# --- enqueue


async def past_its_window(arena: Arena) -> None:
    """Leave the key `k` of an ended job behind, its window over."""
    token = (await arena.running(key="k", dedupe_for=SECOND)).token
    await arena.close_attempt(token, Completed())
    await arena.advance(2 * SECOND)


async def test_a_key_taken_over_by_a_living_job_is_its_own_whatever_its_window(arena: Arena) -> None:
    await past_its_window(arena)
    async with arena.holding() as first:
        winner = await first.enqueue(key="k", dedupe_for=SECOND)
        # By the second's clock that window is over, too; but the job lives.
        await arena.advance(2 * SECOND)
        second = await arena.start(lambda seat: seat.enqueue_again(key="k"))
        await second.is_blocked_by(first)
        await first.commit()
    answer = await second.result()
    assert (answer.id, answer.deduped) == (winner, True)
    assert await arena.key_holder("k") == winner


async def test_a_key_that_was_taken_over_and_kept_meanwhile_answers_with_its_job(arena: Arena) -> None:
    await past_its_window(arena)
    worker = await arena.register()
    async with arena.holding() as first:
        token = (await first.running(worker, key="k", dedupe_for=MINUTE)).token
        await first.close_attempt(token, Completed())
        second = await arena.start(lambda seat: seat.enqueue_again(key="k"))
        await second.is_blocked_by(first)
        await first.commit()
    answer = await second.result()
    assert (answer.id, answer.deduped) == (token.job_id, True)


@pytest.mark.parametrize("known", [False, True], ids=["new", "with keys that are taken"])
async def test_a_batch_takes_its_sources_in_their_order(arena: Arena, known: bool) -> None:
    low, high = UUID(int=1), UUID(int=2)
    if known:  # then the sources are written by a statement of their own, for the jobs that hold the keys
        await arena.driver.enqueue_many([new_job(key="a"), new_job(key="b")])
    keys = ("a", "b") if known else (None, None)
    jobs = [new_job(source_id=source, key=key) for source, key in zip((high, low), keys, strict=True)]
    async with arena.holding() as other:
        await other.enqueue(source_id=low)
        batch = await arena.start(lambda seat: seat.driver.enqueue_many(jobs))
        await batch.is_blocked_by(other)
        free = await arena.at_once(lambda seat: seat.enqueue_again(source_id=high))
        await other.commit()
    assert not free.deduped, "nothing above the source it waits for is taken"
    assert [answer.deduped for answer in await batch.result()] == [True, True]


async def test_the_window_of_a_key_that_went_to_another_job_is_not_shown_as_ones_own(arena: Arena) -> None:
    first: NewJob = new_job(key="k")
    await arena.driver.enqueue(first)
    await arena.driver.cancel(first.id, reason="wrong order")
    second = new_job(key="k", dedupe_for=MINUTE)
    await arena.driver.enqueue(second)
    rows = await arena.fetch(enqueue_statements.KNOWN_IDS, [0, 1], [first.id, second.id])
    assert {row["ord"]: row["expires_at"] for row in rows} == {0: None, 1: arena.now() + MINUTE}


async def test_a_key_that_is_another_jobs_by_now_is_left_alone_by_whoever_ends(arena: Arena) -> None:
    """No verb takes a living job's key; somebody's repair of the table may."""
    token, other = (await arena.running(key="k")).token, await arena.enqueue()
    await arena.fetch("update outlast.live_key set job_id = $1", other)
    await arena.close_attempt(token, Completed())
    rows = await arena.fetch("select job_id, ended from outlast.live_key")
    assert [(row[0], row[1]) for row in rows] == [(other, False)]


# --- names


async def test_names_are_added_in_their_order(arena: Arena) -> None:
    added = "insert into outlast.job_name(name) values ('a')"
    async with arena.holding() as other:
        await other.connection.execute(added)
        both = await arena.start(lambda seat: seat.connection.fetch(names._NAME_IDS, ["b", "a"]))
        await both.is_blocked_by(other)
        free = await arena.at_once(lambda seat: seat.connection.fetch(names._NAME_IDS, ["b"]))
        await other.rollback()
    assert [row["name"] for row in free] == ["b"]
    assert "a" in {row["name"] for row in await both.result()}


async def test_a_name_that_is_there_uses_up_no_number(arena: Arena) -> None:
    (first,) = await arena.fetch(names._NAME_IDS, ["one"])
    await arena.fetch(names._NAME_IDS, ["one"])
    (second,) = await arena.fetch(names._NAME_IDS, ["two"])
    assert second["id"] == first["id"] + 1


# --- numbers


async def test_a_number_that_comes_again_belongs_to_one_job(arena: Arena) -> None:
    """As in a database that was put together from two: the token that has an ended job's number is another job's."""
    ended = await arena.enqueue()
    worker = await arena.register()
    await arena.close_attempt((await arena.claim_one(worker)).token, Completed())
    await arena.fetch("select setval('outlast.token_seq', (select seq from outlast.job), false)")
    other = await arena.enqueue()
    numbers = await arena.fetch("select count(distinct seq) from outlast.job")
    assert numbers[0][0] == 1
    await arena.driver.cancel(ended, reason="late")
    assert await arena.bucket(other) == "ready"
    assert (await arena.describe(ended)).state == "done"


# --- reap


async def test_a_job_that_must_run_alone_dies_of_nothing_but_a_crash(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker, max_crashes=1)).token
    assert await arena.driver.isolate(token)
    await arena.driver.close_worker(worker)
    assert [one.is_dead for one in await arena.driver.reap()] == [False]
    assert await arena.bucket(token.job_id) == "ready"


async def test_a_job_that_ran_alone_dies_of_its_last_crash_only(arena: Arena) -> None:
    token = (await arena.running(max_crashes=2)).token
    assert await arena.driver.isolate(token)
    await arena.vanish()
    assert [one.is_dead for one in await arena.driver.reap()] == [False]
    assert (await arena.describe(token.job_id)).counters.crashes == 1


async def test_a_claim_whose_envelope_is_gone_is_not_lost(arena: Arena) -> None:
    """No verb can bring that about; a token that nothing moves any more would be the worse for it."""
    token = (await arena.running()).token
    assert await arena.driver.isolate(token)
    await arena.fetch("delete from outlast.job")
    await arena.vanish()
    assert len(await arena.driver.reap()) == 1
    assert await arena.bucket(token.job_id) == "ready"
