"""The rows of turns: they go when nobody needs them, and stay where an operator has said something."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.queue import QueueChange
from app.drivers.postgres.gate_look import MOST_TENANTS
from tests.conformance.gated import admit
from tests.postgres.arena import Arena
from tests.support.drivers import QUEUE, new_job

pytestmark = pytest.mark.postgres

DAY = timedelta(days=1)
FAIR = QueueChange(is_fair=True)


async def known(arena: Arena) -> list[str]:
    return [row[0] for row in await arena.fetch("select tenant from outlast.turn order by tenant")]


async def started(arena: Arena, tenants: str) -> str:
    """Enqueue a job of each tenant, and let in what waits; gives the order."""
    await arena.driver.enqueue_many([new_job(tenant=tenant) for tenant in tenants])
    return "".join(job.tenant for job in await admit(arena, await arena.register()))


async def test_a_tenant_that_began_nothing_for_a_day_is_forgotten_and_has_lost_nothing(arena: Arena) -> None:
    await arena.driver.set_queue(QUEUE, QueueChange(is_fair=True, weights={"w": 2}))
    await started(arena, "aab")
    await arena.advance(DAY / 2)
    await started(arena, "b")
    assert not (await arena.driver.due()).must_line_up
    await arena.advance(DAY / 2 + timedelta(seconds=1))
    assert (await arena.driver.due()).must_line_up
    assert await arena.driver.line_up() == 0
    assert not (await arena.driver.due()).must_line_up
    assert await known(arena) == ["b", "w"]
    # Both begin where the queue is, of which b has just had its turn.
    assert await started(arena, "aabb") == "aabb"


async def test_a_queue_that_is_not_fair_is_looked_at_by_nobody(arena: Arena) -> None:
    await arena.driver.set_queue("other", FAIR)
    await arena.driver.set_queue(QUEUE, QueueChange(max_depth=100))
    await arena.driver.enqueue_many([new_job(tenant=tenant) for tenant in "aab"])
    assert not (await arena.driver.due()).must_line_up
    assert await arena.driver.line_up() == 0
    assert [job.tenant for job in await arena.claim(await arena.register())] == ["a", "a", "b"]


async def test_jobs_keep_their_age_and_their_order_when_they_are_lined_up(arena: Arena) -> None:
    jobs = [new_job(tenant="a", priority=priority) for priority in (7, 3, 7)]
    await arena.driver.enqueue_many(jobs)
    await arena.advance(timedelta(minutes=5))
    await arena.driver.set_queue(QUEUE, FAIR)
    (queue,) = await arena.driver.queues()
    assert queue.oldest_ready_seconds == 300.0
    admitted = await admit(arena, await arena.register())
    assert [job.token.job_id for job in admitted] == [jobs[1].id, jobs[0].id, jobs[2].id]
    # What has been in line stands in line again, whatever brings it back.
    await arena.driver.release([job.token for job in admitted], cause="drain")
    assert {await arena.bucket(job.id) for job in jobs} == {"gate"}


async def test_of_more_tenants_than_a_look_meets_the_next_look_meets_the_others(arena: Arena) -> None:
    """However much those before them have waiting."""
    await arena.driver.set_queue(QUEUE, FAIR)
    many = [f"t{number:03}" for number in range(MOST_TENANTS)]
    await arena.driver.enqueue_many([new_job(tenant=tenant) for tenant in (*many, *many, "u")])
    worker = await arena.register()
    begun = [job.tenant for _ in range(3) for job in await admit(arena, worker, room=1)]
    assert begun == ["t000", "u", "t001"]


async def test_more_jobs_than_a_batch_are_lined_up_by_one_setting(arena: Arena) -> None:
    await arena.driver.enqueue_many([new_job(tenant="a") for _ in range(2_100)])
    await arena.driver.set_queue(QUEUE, FAIR)
    assert (await arena.fetch("select count(*) from outlast.ready"))[0][0] == 0
    assert (await arena.fetch("select count(*) from outlast.gate where tenant = 'a'"))[0][0] == 2_100


async def test_a_process_that_does_not_know_yet_finds_out_and_forgets(arena: Arena) -> None:
    """Its own knowledge chooses the way alone; what a queue is, the statements say."""
    async with arena.holding() as other:
        await other.driver.set_queue(QUEUE, FAIR)
        await other.commit()
    first = await arena.enqueue(tenant="a")
    assert await arena.bucket(first) == "gate"
    second = await arena.enqueue(tenant="a", queue="other")
    assert await arena.bucket(second) == "ready"
    async with arena.holding() as other:
        await other.driver.set_queue(QUEUE, QueueChange(is_fair=False))
        await other.commit()
    for _ in range(2):
        assert await arena.bucket(await arena.enqueue(tenant="a")) == "ready"


async def test_a_queue_that_is_fair_and_has_a_maximum_counts_and_lines_up(arena: Arena) -> None:
    async with arena.holding() as other:
        await other.driver.set_queue(QUEUE, QueueChange(is_fair=True, max_depth=2))
        await other.commit()
    jobs = [new_job(tenant="a"), new_job(tenant="b", key="once")]
    await arena.driver.enqueue_many(jobs)
    assert {await arena.bucket(job.id) for job in jobs} == {"gate"}
    assert (await arena.enqueue_again(tenant="b", key="once")).deduped
    facts = await arena.driver.queue_facts(QUEUE)
    assert (facts.depth, facts.is_full) == (2, True)
