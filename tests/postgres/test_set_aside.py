"""Tokens whose envelope somebody deleted: a claim goes on without them, and meets them once."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.job import JobId
from app.domain.outcome import Completed, Settlement
from app.domain.state import State
from app.drivers.postgres.database import Database
from app.drivers.postgres.set_aside import set_aside
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.postgres.arena import Arena
from tests.support.drivers import NAME, QUEUE, new_id, new_job

pytestmark = pytest.mark.postgres


async def without_envelopes(arena: Arena, count: int = 1, **fields: Any) -> list[JobId]:
    """Enqueue jobs and delete their envelopes."""
    jobs = [new_job(**fields) for _ in range(count)]
    await arena.driver.enqueue_many(jobs)
    await arena.fetch("delete from outlast.job where id = any($1::uuid[])", [job.id for job in jobs])
    return [job.id for job in jobs]


async def held(arena: Arena) -> list[JobId]:
    """Give the ids of tokens that were put aside, by id."""
    rows = await arena.fetch("select job_id, reason, attempt from outlast.held order by job_id")
    assert {(row["reason"], row["attempt"]) for row in rows} <= {("no envelope", 0)}
    return [row["job_id"] for row in rows]


@pytest.mark.parametrize("queues", [(QUEUE,), (QUEUE, "b")], ids=["one queue", "two"])
@pytest.mark.parametrize("alone_ok", [True, False], ids=["empty worker", "busy worker"])
async def test_a_claim_goes_on_without_tokens_that_have_no_envelope(
    arena: Arena, queues: tuple[str, ...], alone_ok: bool
) -> None:
    lost = await without_envelopes(arena, 3, priority=0)
    jobs = [await arena.enqueue() for _ in range(3)]
    worker = await arena.register()
    shares = tuple(QueueShare(queue=queue, room=3) for queue in queues)
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=3, alone_ok=alone_ok)
    claimed = await arena.driver.claim(request)
    assert [job.token.job_id for job in claimed] == jobs
    assert not any(job.must_run_alone for job in claimed)
    assert await held(arena) == sorted(lost)
    assert await arena.driver.claim(request) == ()
    stats = await arena.driver.stats()
    assert (stats.by_state[State.RUNNING], stats.by_state[State.HELD], stats.by_state[State.READY]) == (3, 3, 0)


async def test_a_claim_that_rides_along_with_a_settle_goes_on_too(arena: Arena) -> None:
    worker = await arena.register()
    running = await arena.running(worker)
    lost = await without_envelopes(arena, priority=0)
    job = await arena.enqueue()
    shares = (QueueShare(queue=QUEUE, room=1),)
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=1)
    _, claimed = await arena.driver.settle_and_claim([Settlement(token=running.token, outcome=Completed())], request)
    assert [one.token.job_id for one in claimed] == [job]
    assert await held(arena) == lost
    assert (await arena.describe(running.token.job_id)).state is State.DONE


async def test_a_job_that_came_back_without_its_envelope_is_put_aside(arena: Arena) -> None:
    running = await arena.running()
    await arena.fetch("delete from outlast.job where id = $1", running.token.job_id)
    await arena.vanish()
    await arena.driver.reap()
    assert await arena.claim(await arena.register()) == ()
    assert await held(arena) == [running.token.job_id]


async def test_only_the_very_claim_is_put_aside(arena: Arena) -> None:
    """Not one of another worker, or that of a later claim; and none beside it."""
    mine, other = await arena.register(), await arena.register()
    claims = [(await arena.running(mine)).token for _ in range(2)]
    ids, seqs = [token.job_id for token in claims], [token.fence for token in claims]
    db = Database(arena.engine)
    await set_aside(db, other, [(ids[0], seqs[0])])
    await set_aside(db, mine, [(ids[0], seqs[0] + 1_000)])
    await set_aside(db, mine, [(new_id(), seqs[0])])
    assert await held(arena) == []
    await set_aside(db, mine, [(ids[0], seqs[0])])
    assert await held(arena) == [ids[0]]
    assert await arena.bucket(ids[1]) == "running"
