"""What maintenance does to rows that only PostgreSQL has: limits, kept keys, workers' rows, a long ledger."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import cast

import pytest

from app.domain.job import JobId
from app.domain.outcome import Interrupted
from app.domain.state import State
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.due_mark import MARGIN
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena, Seat

pytestmark = pytest.mark.postgres

MINUTE = timedelta(minutes=1)


async def test_the_limit_of_a_running_job_takes_no_place_in_the_batch(arena: Arena) -> None:
    running = (await arena.running(deadline=MINUTE)).token.job_id
    waiting = await arena.enqueue(deadline=2 * MINUTE)
    await arena.advance(3 * MINUTE)
    assert len(await arena.driver.expire(batch=1)) == 1
    assert (await arena.bucket(running), await arena.bucket(waiting)) == ("running", "finished")
    assert [row[0] for row in await arena.fetch("select job_id from outlast.expiry")] == [running]


async def test_limits_of_ended_jobs_are_cleared_away_when_they_pass(arena: Arena) -> None:
    job_id = await arena.enqueue(deadline=MINUTE, max_queue_time=MINUTE)
    await arena.driver.cancel(job_id, reason="wrong order")
    await arena.advance(2 * MINUTE)
    assert await arena.driver.expire() == ()
    assert await arena.fetch("select from outlast.expiry") == []


async def test_a_key_outlives_its_purged_job_and_goes_when_its_window_is_over(arena: Arena) -> None:
    job_id = await arena.enqueue(key="k", dedupe_for=10 * MINUTE)
    await arena.driver.cancel(job_id, reason="wrong order")
    query = PurgeQuery(state=State.CANCELLED, older_than=MINUTE)
    await arena.advance(2 * MINUTE)
    assert await arena.driver.purge(query) == 1
    kept = await arena.enqueue_again(key="k")
    assert (kept.id, kept.deduped) == (job_id, True)
    await arena.advance(10 * MINUTE)
    assert await arena.driver.purge(query) == 0
    assert await arena.fetch("select from outlast.live_key") == []


async def test_a_purge_leaves_nothing_of_a_job_but_its_source(arena: Arena) -> None:
    source = (await arena.enqueue_again(deadline=10 * MINUTE)).id
    job_id = await arena.enqueue(source_id=source, deadline=10 * MINUTE, key="k")
    await arena.driver.cancel(source, reason="wrong order")
    await arena.driver.cancel(job_id, reason="wrong order")
    await arena.advance(2 * MINUTE)
    assert await arena.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=MINUTE)) == 2
    for table in ("job", "finished", "attempt", "expiry", "live_key"):
        assert await arena.fetch(f"select from outlast.{table}") == []
    assert len(await arena.fetch("select from outlast.source")) == 1


async def test_a_job_whose_id_is_from_a_clock_ahead_is_purged_later_than_others(arena: Arena) -> None:
    job_id = await arena.enqueue()
    await arena.driver.cancel(job_id, reason="wrong order")
    # The database's clock goes back: now the id is from an hour ahead.
    await arena.advance(-2 * timedelta(hours=1))
    await arena.fetch("update outlast.finished set finished_at = outlast.clock()")
    query = PurgeQuery(state=State.CANCELLED, older_than=MINUTE)
    await arena.advance(2 * MINUTE)
    assert await arena.driver.purge(query) == 0
    await arena.advance(2 * timedelta(hours=1))
    assert await arena.driver.purge(query) == 1


_ANOTHER_LEDGER = """
insert into outlast.attempt(job_id, number, outcome, cause, counted)
select '00000000-0000-0000-0000-000000000000', i, 'retried', 'error', true from generate_series(1, 150) i"""


@pytest.mark.parametrize("by", ["reap", "cancel", "surrender"])
async def test_a_long_ledger_keeps_its_first_and_its_last_rows(arena: Arena, by: str) -> None:
    worker = await arena.register()
    await arena.fetch(_ANOTHER_LEDGER)
    job_id = await arena.enqueue(max_crashes=1000)
    for _ in range(104):
        token = (await arena.claim_one(worker)).token
        await arena.close_attempt(token, Interrupted(cause="drain"))
    await arena.claim_one(worker)
    match by:
        case "reap":
            await arena.driver.close_worker(worker)
            assert len(await arena.driver.reap()) == 1
        case "cancel":
            await arena.driver.cancel(job_id, reason="enough")
        case _:
            assert len(await arena.driver.surrender(worker)) == 1
    assert [row.number for row in await arena.ledger(job_id)] == [*range(1, 21), *range(26, 106)]
    others = await arena.fetch("select count(*) as n from outlast.attempt where job_id <> $1", job_id)
    assert others[0]["n"] == 150, "another job's is none of its business"


async def test_a_reap_waits_one_lease_after_the_servers_start(arena: Arena) -> None:
    token = (await arena.running()).token
    # By its clock, the server has started a second ago, and all leases passed while it was down.
    (started,) = (await arena.fetch("select pg_postmaster_start_time()"))[0]
    await arena.set_clock(started + timedelta(seconds=1))
    await arena.fetch("update outlast.worker set lease_until = outlast.clock() - interval '1 minute'")
    assert await arena.driver.reap() == ()
    assert await arena.bucket(token.job_id) == "running"
    await arena.set_clock(started + timedelta(seconds=31))
    assert len(await arena.driver.reap()) == 1


# --- the due mark


async def _late(arena: Arena, slow: Seat, by: timedelta) -> JobId:
    """Let a job be delayed that is seen `by` after its time, when the process has promoted on."""
    late = await slow.enqueue(delay=timedelta(seconds=1))
    await arena.enqueue(delay=timedelta(seconds=2))
    await arena.advance(timedelta(seconds=1) + by)
    assert await arena.driver.promote() == 1
    await slow.commit()
    return late


async def test_a_job_that_is_seen_within_a_margin_after_its_time_is_promoted_at_the_next_look(
    lone_arena: Arena,
) -> None:
    async with lone_arena.holding() as slow:
        late = await _late(lone_arena, slow, MARGIN)
    assert await lone_arena.driver.promote() == 1
    assert await lone_arena.bucket(late) == "ready"


async def test_a_job_that_is_seen_later_than_that_is_promoted_within_half_a_minute(lone_arena: Arena) -> None:
    async with lone_arena.holding() as slow:
        late = await _late(lone_arena, slow, MARGIN + timedelta(seconds=1))
    assert await lone_arena.driver.promote() == 0
    mark = cast("PostgresDriver", lone_arena.driver)._db.due_mark
    mark.monotonic = lambda: time.monotonic() + 30
    assert await lone_arena.driver.promote() == 1
    assert await lone_arena.bucket(late) == "ready"


async def test_a_backlog_of_due_jobs_is_promoted_batch_by_batch_to_its_end(lone_arena: Arena) -> None:
    """Times that lie further apart than the margin, and many of one time across the end of a batch."""
    delays = [timedelta(seconds=seconds) for seconds in (1, 1, 1, 60, 60, 60, 60, 3600)]
    ids = [await lone_arena.enqueue(delay=delay) for delay in delays]
    await lone_arena.advance(timedelta(hours=2))
    assert [await lone_arena.driver.promote(batch=2) for _ in range(5)] == [2, 2, 2, 2, 0]
    claimed = await lone_arena.claim(await lone_arena.register())
    assert [one.token.job_id for one in claimed] == ids
