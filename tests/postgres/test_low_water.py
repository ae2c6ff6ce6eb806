"""The low-water mark on PostgreSQL: what commits late, is locked, paused or must run alone is still claimed.

On a server without neighbours, whose transactions would hold the marks and make these tests show nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from app.domain.job import JobId, WorkerId
from app.domain.outcome import DeadLettered, Interrupted, Retried
from app.domain.state import DeadReason
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.enqueue_statements import ENQUEUE, ENQUEUE_PLAIN
from app.drivers.postgres.low_look import LOOK_BELOW
from app.drivers.postgres.low_water import LowWater, Stretch
from tests.postgres.arena import Arena
from tests.postgres.meter import asks
from tests.support.drivers import ERROR, QUEUE, new_job

pytestmark = pytest.mark.postgres


def water_of(arena: Arena) -> LowWater:
    return cast("PostgresDriver", arena.driver)._db.low_water


def stretches(arena: Arena, queue: str = QUEUE) -> Sequence[Stretch]:
    return water_of(arena).stretches([queue])


async def churn(arena: Arena, worker: WorkerId, rounds: int = 2, *, priority: int = 5) -> None:
    """Enqueue a job and claim it, a few times: as many claims as a mark needs."""
    for _ in range(rounds):
        job_id = await arena.enqueue(priority=priority)
        assert [one.token.job_id for one in await arena.claim(worker, room=1)] == [job_id]


async def claimed(arena: Arena, worker: WorkerId) -> list[JobId]:
    return [one.token.job_id for one in await arena.claim(worker)]


async def passed_over(arena: Arena, worker: WorkerId) -> JobId:
    """Give a job below the mark: it became visible late, and somebody else, who rolled back, had it just then."""
    other = await arena.register()
    async with arena.holding() as slow, arena.holding() as seat:
        late = await slow.enqueue()
        await churn(arena, worker, rounds=1)
        await slow.commit()
        assert (await seat.claim_one(other)).token.job_id == late
        await churn(arena, worker, rounds=1)
        await seat.rollback()
    return late


async def test_claims_move_the_mark(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    await churn(lone_arena, worker)
    first = stretches(lone_arena)
    await churn(lone_arena, worker)
    assert [(part.rank, part.end) for part in first] == [(-32768, 11), (11, 32767)]
    assert stretches(lone_arena)[1].seq > first[1].seq


async def test_a_job_whose_enqueue_commits_late_is_claimed(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    async with lone_arena.holding() as slow:
        late = await slow.enqueue()
        await churn(lone_arena, worker)
        before = stretches(lone_arena)
        await churn(lone_arena, worker, rounds=3)
        assert stretches(lone_arena) == before, "held while the number may still come"
        await slow.commit()
    assert await claimed(lone_arena, worker) == [late]


async def test_a_job_whose_enqueue_has_the_youngest_id_of_all_is_claimed(lone_arena: Arena) -> None:
    """Its transaction lies above every one that has ended, where a snapshot's upper bound does not speak of it."""
    worker = await lone_arena.register()
    await churn(lone_arena, worker, rounds=1)
    async with lone_arena.holding() as elder, lone_arena.holding() as younger:
        await elder.connection.fetchval("select pg_current_xact_id()")
        late = await younger.enqueue()
        first = await elder.enqueue()
        await elder.commit()
        assert await claimed(lone_arena, worker) == [first]
        await churn(lone_arena, worker, rounds=3)
        await younger.commit()
    assert await claimed(lone_arena, worker) == [late]


async def test_a_reader_does_not_hold_the_mark(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    async with lone_arena.holding() as reader:
        await reader.connection.fetchval("select count(*) from outlast.job")
        await churn(lone_arena, worker)
        assert len(stretches(lone_arena)) == 2


async def test_a_job_that_was_passed_over_while_locked_is_claimed_within_half_a_minute(lone_arena: Arena) -> None:
    """It became visible late and somebody else had it just then, and rolled back: the one thing a mark may hide."""
    worker = await lone_arena.register()
    late = await passed_over(lone_arena, worker)
    assert await claimed(lone_arena, worker) == []
    water_of(lone_arena).monotonic = lambda: time.monotonic() + 30
    assert await claimed(lone_arena, worker) == [late]


async def looked_below(arena: Arena, *, after: float) -> None:
    """Let a claim begin a look below the marks at that time, and have it end."""
    water_of(arena).monotonic = lambda: time.monotonic() + after
    look = cast("PostgresDriver", arena.driver)._db.low_look
    assert await arena.claim(await arena.register()) == ()
    assert look._task is not None
    await look._task


async def test_what_was_passed_over_while_locked_is_met_by_a_look_beside_the_claims(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    late = await passed_over(lone_arena, worker)
    await looked_below(lone_arena, after=21)
    assert len(stretches(lone_arena)) == 1
    assert await claimed(lone_arena, worker) == [late]


async def test_marks_below_which_there_is_nothing_stay(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    await churn(lone_arena, worker)
    before = stretches(lone_arena)
    assert len(before) == 2
    for number in range(1, 4):
        await looked_below(lone_arena, after=21 * number)
        assert stretches(lone_arena) == before
    job_id = await lone_arena.enqueue()
    assert await claimed(lone_arena, worker) == [job_id]


async def test_what_lies_elsewhere_lets_no_marks_go(lone_arena: Arena) -> None:
    """Of another queue, of another job type, of another priority, or above the mark and in somebody's hands."""
    worker, other = await lone_arena.register(), await lone_arena.register()
    await lone_arena.enqueue(queue="mail")
    await lone_arena.enqueue(name="nobody.serves")
    later = await lone_arena.enqueue(priority=9)
    await churn(lone_arena, worker, rounds=1)
    async with lone_arena.holding() as seat:
        assert (await seat.claim_one(other)).token.job_id == later
        await churn(lone_arena, worker, rounds=1)
        before = stretches(lone_arena)
        assert len(before) == 2
        await lone_arena.enqueue()
        assert await seat.claim_one(other)
        await looked_below(lone_arena, after=21)
        assert stretches(lone_arena) == before


async def test_a_look_that_fails_lets_the_marks_go(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    await churn(lone_arena, worker)
    driver = cast("PostgresDriver", lone_arena.driver)
    driver._db._sql[LOOK_BELOW] = "select 1 / 0"
    await looked_below(lone_arena, after=21)
    assert len(stretches(lone_arena)) == 1


async def test_a_failed_claim_makes_the_process_look_at_everything_again(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    await churn(lone_arena, worker)
    await lone_arena.execute("alter table outlast.running rename to mislaid")
    with pytest.raises(Exception, match="running"):
        await lone_arena.claim(worker)
    await lone_arena.execute("alter table outlast.mislaid rename to running")
    assert len(stretches(lone_arena)) == 1


@pytest.mark.parametrize("queues", [(QUEUE,), (QUEUE, "mail")], ids=["one queue", "two"])
async def test_a_job_passed_over_because_it_must_run_alone_is_claimed_later(
    lone_arena: Arena, queues: tuple[str, ...]
) -> None:
    worker = await lone_arena.register()
    alone = await lone_arena.enqueue(max_crashes=1)
    shared = replace(asks(worker, 1, *queues), alone_ok=False)
    for _ in range(4):
        job_id = await lone_arena.enqueue()
        assert [one.token.job_id for one in await lone_arena.driver.claim(shared)] == [job_id]
    (held,) = await lone_arena.driver.claim(replace(shared, alone_ok=True))
    assert held.token.job_id == alone


async def test_jobs_of_a_queue_that_was_paused_are_claimed_when_it_goes_on(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    for _ in range(3):
        await lone_arena.enqueue(queue="mail")
        assert len(await lone_arena.claim(worker, queues=(QUEUE, "mail"))) == 1
    await lone_arena.driver.pause_queue("mail", by="ops")
    waiting = [await lone_arena.enqueue(queue="mail") for _ in range(3)]
    for _ in range(3):
        job_id = await lone_arena.enqueue()
        claims = await lone_arena.claim(worker, queues=(QUEUE, "mail"))
        assert [one.token.job_id for one in claims] == [job_id]
    await lone_arena.driver.resume_queue("mail")
    claims = await lone_arena.claim(worker, queues=(QUEUE, "mail"))
    assert [one.token.job_id for one in claims] == waiting


# What a mark rests on: whoever draws a number has a transaction id by then, and says so in every snapshot.
_CHECKED = """
create function outlast.checked_next() returns bigint language plpgsql as $$
begin
  if pg_current_xact_id_if_assigned() is null then raise 'a number was drawn before a transaction id'; end if;
  return nextval('outlast.token_seq');
end $$"""


async def test_whatever_makes_a_job_ready_has_its_transaction_id_before_it_draws_a_number(lone_arena: Arena) -> None:
    env, driver = lone_arena, cast("PostgresDriver", lone_arena.driver)
    await env.execute(_CHECKED)
    await env.execute("alter table outlast.ready alter column seq set default outlast.checked_next()")
    drawn = "nextval('outlast.token_seq')"
    for statement in (ENQUEUE, ENQUEUE_PLAIN):
        assert statement.count(drawn) == 1
        driver._db._sql[statement] = statement.replace(drawn, "outlast.checked_next()")
    worker = await env.register()
    held = await env.running(worker)
    await driver.release((held.token,), cause="test")
    await env.close_attempt((await env.claim_one(worker)).token, Interrupted(cause="drain"))
    await env.close_attempt((await env.claim_one(worker)).token, Retried(error=ERROR, delay=timedelta(seconds=1)))
    await env.advance(timedelta(seconds=2))
    assert await driver.promote() == 1
    await env.claim_one(worker)
    assert await driver.reconcile(worker, ()) == 1
    await env.claim_one(worker)
    await driver.surrender(worker)
    await env.claim_one(await env.register())
    await env.vanish()
    await driver.reap()
    last = await env.claim_one(await env.register())
    await env.close_attempt(last.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    await driver.retry(last.token.job_id)
    assert last.token.job_id == held.token.job_id
    await driver.enqueue_many([new_job() for _ in range(3)])
    await driver.enqueue_many([new_job(), new_job(key="k")])
    assert len(await env.claim(await env.register())) == 6


async def test_claims_keep_their_order_beside_marks_of_many_ranks(lone_arena: Arena) -> None:
    """Ranks with a mark, ranks between them and ranks outside; resumed work before new work of its priority."""
    worker = await lone_arena.register()
    for priority in (7, 5, 2):
        await churn(lone_arena, worker, rounds=3, priority=priority)
    await lone_arena.enqueue(priority=5)
    resumed = (await lone_arena.claim_one(worker)).token
    assert len(stretches(lone_arena)) == 4
    order = [9, 5, 2, 7, 6, 0, 3, 5]
    ids = [await lone_arena.enqueue(priority=priority) for priority in order]
    await lone_arena.close_attempt(resumed, Interrupted(cause="drain"))
    assert await claimed(lone_arena, worker) == [
        *(ids[5], ids[2], ids[6], resumed.job_id, ids[1], ids[7], ids[4], ids[3], ids[0]),
    ]


async def test_room_goes_to_the_first_ranks_of_all_queues_beside_marks(lone_arena: Arena) -> None:
    worker = await lone_arena.register()
    queues = ("a", "b")
    for priority in (6, 3, 3, 6, 3, 6):
        for queue in queues:
            await lone_arena.enqueue(queue=queue, priority=priority)
        assert len(await lone_arena.claim(worker, queues=queues)) == 2
    assert [len(stretches(lone_arena, queue)) for queue in queues] == [3, 3]
    ids = {
        (queue, priority): await lone_arena.enqueue(queue=queue, priority=priority)
        for queue, priority in [("a", 6), ("a", 4), ("b", 3), ("b", 8), ("a", 3)]
    }
    claims = await lone_arena.claim(worker, queues=queues, room=3)
    assert [one.token.job_id for one in claims] == [ids["b", 3], ids["a", 3], ids["a", 4]]
