"""As `test_predicates`, of the statements beside a worker's own: retries, purges, limits, workers' rows, queues."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.domain.errors import JobStateConflict
from app.domain.job import JobId
from app.domain.outcome import Completed, Held, Retried
from app.domain.queue import QueueChange
from app.domain.state import State
from app.drivers.postgres import queues
from app.drivers.postgres import retry as retry_module
from app.drivers.postgres.waits import wake_parents
from app.drivers.protocol import PurgeQuery, Wake
from tests.conformance.runs import called, die
from tests.postgres.arena import Arena
from tests.postgres.test_predicates import past_its_window
from tests.support.drivers import ERROR

pytestmark = pytest.mark.postgres

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DONE_LONG_AGO = PurgeQuery(state=State.DONE, older_than=timedelta(days=1))


# --- retry


async def test_a_job_that_cannot_be_retried_takes_no_key(arena: Arena) -> None:
    token = (await arena.running(key="k")).token
    await arena.close_attempt(token, Completed())
    with pytest.raises(JobStateConflict):
        await arena.driver.retry(token.job_id)
    assert await arena.key_holder("k") is None


async def test_a_retry_writes_the_envelope_only_when_there_is_a_time_to_forget(arena: Arena) -> None:
    plain, timed = await arena.enqueue(), await arena.enqueue(deadline=MINUTE)
    for job_id in (plain, timed):
        await arena.driver.cancel(job_id, reason="wrong order")
    before = await _versions(arena)
    for job_id in (plain, timed):
        await arena.driver.retry(job_id)
    after = await _versions(arena)
    assert [before[job_id] == after[job_id] for job_id in (plain, timed)] == [True, False]


async def test_a_run_that_is_told_late_waits_on_for_a_child_that_lives_again(arena: Arena) -> None:
    parent, child = await called(arena)
    await die(arena, child, is_child=False)
    await arena.driver.retry(child.token.job_id)
    driver: Any = arena.driver
    assert await wake_parents(driver._db, [child.token.job_id]) == 0
    assert await arena.bucket(parent.token.job_id) == "suspended"


async def test_whoever_holds_the_key_stands_in_a_retrys_way_as_long_as_it_does(arena: Arena) -> None:
    mine = await arena.enqueue(key="k", dedupe_for=SECOND)
    await arena.driver.cancel(mine, reason="wrong order")
    assert await _holder_in_the_way(arena, mine) is None, "its own key, kept for its window"
    await arena.advance(2 * SECOND)
    other = (await arena.running(key="k", dedupe_for=MINUTE)).token
    assert await _holder_in_the_way(arena, mine) == other.job_id
    await arena.close_attempt(other, Completed())
    assert await _holder_in_the_way(arena, mine) == other.job_id, "ended, its window lasts"
    await arena.advance(2 * MINUTE)
    assert await _holder_in_the_way(arena, mine) is None


async def _holder_in_the_way(arena: Arena, job_id: JobId) -> JobId | None:
    (row,) = await arena.fetch(retry_module._WHY_NOT, job_id, None)
    assert row["state"] == State.CANCELLED
    holder: JobId | None = row["holder"]
    return holder


async def _versions(arena: Arena) -> dict[JobId, str]:
    return {JobId(row[0]): row[1] for row in await arena.fetch("select id, ctid::text from outlast.job")}


# --- keys that a purge may take


async def test_a_purge_leaves_a_living_jobs_key_whatever_its_window(arena: Arena) -> None:
    job_id = await arena.enqueue(key="k", dedupe_for=SECOND)
    await arena.advance(MINUTE)
    await arena.driver.purge(DONE_LONG_AGO)
    assert await arena.key_holder("k") == job_id


async def test_a_purge_passes_over_a_key_that_is_being_taken_over(arena: Arena) -> None:
    await past_its_window(arena)
    async with arena.holding() as other:
        winner = await other.enqueue(key="k")
        await arena.at_once(lambda seat: seat.driver.purge(DONE_LONG_AGO))
        await other.commit()
    assert await arena.key_holder("k") == winner


# --- limits


async def test_an_expire_passes_over_the_limits_another_one_has(arena: Arena) -> None:
    ids = [await arena.enqueue(deadline=number * SECOND) for number in (3, 1, 2)]
    await arena.advance(MINUTE)
    async with arena.holding() as first:
        some = await first.driver.expire(batch=1)
        rest = await arena.at_once(lambda seat: seat.driver.expire())
        await first.commit()
    assert [one.job_id for one in some] == [ids[1]], "the longest past first"
    assert [one.job_id for one in rest] == sorted([ids[0], ids[2]])


async def test_an_expire_passes_over_what_came_back_and_is_being_claimed(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker, deadline=SECOND)).token
    await arena.driver.release((token,), cause="test")
    await arena.advance(2 * SECOND)
    async with arena.holding() as claimer:
        await claimer.claim_one(worker)
        assert await arena.at_once(lambda seat: seat.driver.expire()) == ()
        await claimer.commit()
    assert await arena.bucket(token.job_id) == "running"


async def test_an_expire_passes_over_what_is_being_promoted_and_finds_it_next_time(arena: Arena) -> None:
    """Also where it has begun: that ends another limit than the deadline."""
    token = (await arena.running(deadline=SECOND)).token
    await arena.close_attempt(token, Retried(error=ERROR, delay=SECOND))
    await arena.advance(2 * SECOND)
    async with arena.holding() as promoter:
        assert await promoter.driver.promote() == 1
        assert await arena.at_once(lambda seat: seat.driver.expire()) == ()
        await promoter.commit()
    assert [one.job_id for one in await arena.driver.expire()] == [token.job_id]


async def test_an_expire_passes_over_what_is_held_and_being_cancelled(arena: Arena) -> None:
    token = (await arena.running(deadline=SECOND)).token
    await arena.close_attempt(token, Held(reason="test"))
    await arena.advance(2 * SECOND)
    async with arena.holding() as operator:
        await operator.driver.cancel(token.job_id, reason="first")
        assert await arena.at_once(lambda seat: seat.driver.expire()) == ()
        await operator.commit()
    assert (await arena.describe(token.job_id)).state == "cancelled"


async def test_a_held_job_is_held_on_past_the_time_to_begin(arena: Arena) -> None:
    token = (await arena.running(max_queue_time=SECOND)).token
    await arena.close_attempt(token, Held(reason="test"))
    await arena.advance(2 * SECOND)
    assert await arena.driver.expire() == ()
    assert await arena.bucket(token.job_id) == "held"


async def test_a_start_ends_the_limit_on_the_start_and_no_other(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker, max_queue_time=SECOND, deadline=MINUTE)).token
    await arena.close_attempt(token, Retried(error=ERROR, delay=timedelta(hours=1)))
    await arena.advance(2 * SECOND)
    assert await arena.driver.expire() == ()
    assert [row[0] for row in await arena.fetch("select kind from outlast.expiry")] == [1]
    await arena.advance(MINUTE)
    assert [one.job_id for one in await arena.driver.expire()] == [token.job_id]


async def test_limits_of_a_job_that_is_gone_are_cleared_away(arena: Arena) -> None:
    job_id = await arena.enqueue(deadline=SECOND)
    for table, column in (("ready", "job_id"), ("job", "id")):
        await arena.fetch(f"delete from outlast.{table} where {column} = $1", job_id)
    await arena.advance(2 * SECOND)
    assert await arena.driver.expire() == ()
    assert await arena.fetch("select from outlast.expiry") == []


# --- workers and queues


@pytest.mark.parametrize("mark", ["lost_at", "closed_at", "lease_until"])
async def test_a_boot_id_whose_worker_is_out_gets_a_new_worker(arena: Arena, mark: str) -> None:
    boot, others = uuid4(), uuid4()
    first, other = await arena.register(boot_id=boot), await arena.register(boot_id=others)
    await arena.execute(f"update outlast.worker set {mark} = outlast.clock() where id = {first}")
    second = await arena.register(boot_id=boot)
    assert second not in {first, other}
    rows = await arena.fetch("select id from outlast.worker where boot_id = $1", boot)
    assert [row[0] for row in rows] == [second]
    assert len(await arena.fetch("select from outlast.worker")) == 3
    assert await arena.register(boot_id=others) == other, "nobody else's boot id was given up"


async def test_a_queue_that_is_not_paused_is_not_resumed(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[Wake] = []

    async def ring(_db: object, *wakes: Wake) -> None:
        rung.extend(wakes)

    monkeypatch.setattr(queues, "notify", ring)
    await arena.driver.set_queue("mail", QueueChange(max_depth=1))
    await arena.driver.pause_queue("other", by="ops")
    await arena.driver.resume_queue("mail")
    assert rung == []
    await arena.driver.pause_queue("mail", by="ops")
    await arena.driver.resume_queue("mail")
    assert rung == [Wake.READY]
    rows = await arena.fetch("select name, paused_by, max_depth from outlast.queue order by name")
    assert [tuple(row) for row in rows] == [("mail", None, 1), ("other", "ops", None)]
