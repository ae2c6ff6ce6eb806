"""Rows for a queue that is full stay, and are tried later; the others are published meanwhile. Both ways."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outbox import LONGEST_DEFERRAL, SHORTEST_DEFERRAL, Pass, deferral_of
from app.domain.queue import QueueChange
from app.outbox.passes import Passes
from tests.support.outbox import BATCH, Outbox

HOUR = timedelta(hours=1)


async def rested(outbox: Outbox, after: timedelta = SHORTEST_DEFERRAL) -> None:
    await outbox.env.advance(after)
    assert await outbox.store.recover() == 0


async def test_rows_for_a_full_queue_stay_and_the_others_go_on(outbox: Outbox, passes: Passes) -> None:
    await outbox.env.driver.set_queue("mail", QueueChange(max_depth=1))
    full = [await outbox.staged(queue="mail", key=key) for key in (None, None, "k")]
    others = [await outbox.staged(), await outbox.staged(key="o")]
    assert await passes.once(BATCH) == Pass(published=3, deferred=2)
    assert sum([await outbox.is_there(job_id) for job_id in full]) == 1
    assert [await outbox.is_there(job_id) for job_id in others] == [True, True]
    view = await outbox.view()
    assert (view.staged, view.claimed, view.deferred, view.quarantined) == (0, 0, 2, 0)
    assert await passes.once(BATCH) == Pass()


async def test_a_row_is_published_once_its_queue_has_room(outbox: Outbox, passes: Passes) -> None:
    await outbox.env.driver.set_queue("mail", QueueChange(max_depth=1))
    holder = await outbox.env.enqueue(queue="mail")
    row = await outbox.staged(queue="mail")
    for _ in range(2):
        assert await passes.once(BATCH) == Pass(deferred=1)
        await rested(outbox)
    await outbox.env.driver.cancel(holder, reason="changed their mind")
    assert await passes.once(BATCH) == Pass(published=1)
    assert await outbox.is_there(row)
    assert (await outbox.view()).oldest_at is None


async def test_a_row_rests_longer_the_longer_it_has_waited(outbox: Outbox, passes: Passes) -> None:
    await outbox.env.driver.set_queue("mail", QueueChange(max_depth=0))
    await outbox.staged(queue="mail")
    assert await passes.once(BATCH) == Pass(deferred=1)
    await outbox.env.advance(SHORTEST_DEFERRAL - timedelta(microseconds=1))
    assert await outbox.store.recover() == 0
    assert await passes.once(BATCH) == Pass()
    await rested(outbox, timedelta(seconds=40))
    assert await passes.once(BATCH) == Pass(deferred=1)
    await rested(outbox, timedelta(seconds=9))
    assert await passes.once(BATCH) == Pass()
    await rested(outbox, timedelta(seconds=2))
    assert await passes.once(BATCH) == Pass(deferred=1)


@pytest.mark.parametrize(
    ("age", "rest"),
    [(timedelta(), SHORTEST_DEFERRAL), (timedelta(seconds=20), timedelta(seconds=5)), (HOUR, LONGEST_DEFERRAL)],
)
def test_a_rest_is_a_part_of_the_age_between_its_bounds(age: timedelta, rest: timedelta) -> None:
    assert deferral_of(age) == rest


async def test_many_rows_of_a_full_queue_do_not_hold_up_those_behind(outbox: Outbox, passes: Passes) -> None:
    await outbox.env.driver.set_queue("mail", QueueChange(max_depth=0))
    for _ in range(4):
        await outbox.staged(queue="mail")
        await outbox.env.advance(timedelta(milliseconds=10))
    behind = await outbox.staged()
    for _ in range(3):
        await passes.once(2)
    assert await outbox.is_there(behind)


async def test_rows_of_one_key_for_a_full_queue_stay_all(outbox: Outbox, passes: Passes) -> None:
    await outbox.env.driver.set_queue("mail", QueueChange(max_depth=0))
    rows = [await outbox.staged(queue="mail", key="k") for _ in range(2)]
    assert await passes.once(BATCH) == Pass(deferred=2)
    await outbox.env.driver.set_queue("mail", QueueChange(max_depth=None))
    await rested(outbox)
    assert await passes.once(BATCH) == Pass(published=1, deduped=1)
    assert sum([await outbox.is_there(row) for row in rows]) == 1
