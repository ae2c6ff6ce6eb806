"""What maintenance does to rows that only PostgreSQL has: limits, kept keys, workers' rows, a long ledger."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outcome import Interrupted
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena

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


@pytest.mark.parametrize("by", ["reap", "cancel", "surrender"])
async def test_a_long_ledger_keeps_its_first_and_its_last_rows(arena: Arena, by: str) -> None:
    worker = await arena.register()
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
