"""The table of tags: kept by the table of jobs itself, whatever writes there; and nothing to jobs without tags."""

from __future__ import annotations

import pytest

from tests.postgres.arena import Arena
from tests.postgres.meter import metered, wal_position
from tests.postgres.pages import administrator
from tests.support.drivers import new_id, new_job

pytestmark = pytest.mark.postgres

JOBS = 500
_TRIGGERS = ("tags_made", "tags_changed", "tags_gone")


async def _tags(arena: Arena) -> set[tuple[str, object]]:
    return {(row["tag"], row["job_id"]) for row in await arena.fetch("select tag, job_id from outlast.tag")}


async def test_a_release_that_knows_no_table_of_tags_keeps_it_as_well(arena: Arena) -> None:
    """It writes envelopes, changes and deletes them; that is all."""
    job_id = await arena.enqueue()
    await arena.fetch("update outlast.job set tags = array['b', 'a', 'b'] where id = $1", job_id)
    assert await _tags(arena) == {("a", job_id), ("b", job_id)}
    await arena.fetch("update outlast.job set tags = array['c'] where id = $1", job_id)
    assert await _tags(arena) == {("c", job_id)}
    await arena.fetch("update outlast.job set priority = 3, tags = tags where id = $1", job_id)
    assert await _tags(arena) == {("c", job_id)}
    await arena.fetch("update outlast.job set tags = null where id = $1", job_id)
    assert await _tags(arena) == set()


async def test_tags_come_with_every_way_in_and_go_with_the_job(arena: Arena) -> None:
    jobs = [new_job(tags=("a",)), new_job(tags=("a", "b"), key="k"), new_job()]
    await arena.driver.enqueue_many(jobs)
    copy = (await arena.driver.fork(jobs[1].id, new_id=new_id())).id
    assert await _tags(arena) == {("a", jobs[0].id), ("a", jobs[1].id), ("b", jobs[1].id), ("a", copy), ("b", copy)}
    await arena.driver.cancel(jobs[1].id, reason="over")
    await arena.driver.delete(jobs[1].id)
    assert await _tags(arena) == {("a", jobs[0].id), ("a", copy), ("b", copy)}


async def test_jobs_without_tags_write_not_a_byte_more(lone_url: str) -> None:
    """The same with the triggers and without them."""
    async with metered(lone_url) as meter, administrator(lone_url) as admin:
        worker = await meter.register()

        async def cycle() -> int:
            await admin.execute("checkpoint")
            began = await wal_position(admin)
            await meter.enqueue(JOBS)
            while claimed := await meter.claim(worker, 100):
                await meter.finish(claimed)
            return await wal_position(admin) - began

        await cycle()
        await cycle()
        kept = await cycle()
        for trigger in _TRIGGERS:
            await admin.execute(f"alter table outlast.job disable trigger {trigger}")
        await cycle()
        bare = await cycle()
    assert abs(kept - bare) <= 8 * JOBS
