"""Staging: the caller's commit publishes, its rollback leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.errors import OutboxNoTx
from app.domain.job import NewJob
from app.domain.outbox import Pass
from app.domain.state import State
from app.drivers.protocol import Wake
from app.jobs import Client, job, use_client
from tests.support.drivers import NAME, new_id, new_job
from tests.support.outbox import Outbox

HOUR = timedelta(hours=1)


class Undone(Exception):
    """What makes a transaction roll back."""


async def roll_back(outbox: Outbox, *jobs: NewJob) -> None:
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, jobs)
        raise Undone


async def roll_back_to_savepoint(outbox: Outbox, transaction: object, *jobs: NewJob) -> None:
    async with outbox.savepoint(transaction):
        await outbox.store.stage(transaction, jobs)
        raise Undone


async def test_a_commit_publishes_under_the_id_that_was_given(outbox: Outbox) -> None:
    job_id = await outbox.staged(payload='{"order": 1.50}')
    assert not await outbox.is_there(job_id)
    assert await outbox.publish() == Pass(published=1)
    view = await outbox.env.describe(job_id)
    assert (view.state, view.payload, view.created_at) == (State.READY, '{"order": 1.50}', outbox.env.now())
    assert await outbox.publish() == Pass()


@job(NAME)
def note() -> None: ...


@pytest.mark.parametrize("spelled", [UUID, str, lambda parent: str(parent).upper()], ids=["id", "text", "capitals"])
async def test_a_parent_is_named_by_its_id_or_by_that_as_text(outbox: Outbox, spelled: Callable[[str], Any]) -> None:
    parent = new_id()
    with use_client(Client(outbox.env.driver)):
        answer: Any = await note.enqueue({}, parent_id=spelled(str(parent)))
        async with outbox.transaction() as session:
            staged: Any = await note.enqueue({}, parent_id=spelled(str(parent)), session=session)
    await outbox.publish()
    assert [(await outbox.env.describe(job_id)).parent_id for job_id in (answer.id, staged.id)] == [parent, parent]


async def test_a_rollback_leaves_nothing(outbox: Outbox) -> None:
    job = new_job()
    with pytest.raises(Undone):
        await roll_back(outbox, job)
    assert await outbox.publish() == Pass()
    assert (await outbox.view()).oldest_at is None
    assert await outbox.store.find(job.id) is None


async def test_nothing_is_published_before_the_commit(outbox: Outbox) -> None:
    first, second = new_job(), new_job()
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, [first])
        assert await outbox.publish() == Pass()
        await outbox.stage(second)  # commits before the one that began earlier
        assert await outbox.publish() == Pass(published=1)
    assert await outbox.publish() == Pass(published=1)
    assert await outbox.is_there(first.id)


async def test_a_savepoint_takes_back_its_own_part(outbox: Outbox) -> None:
    kept, undone, last = new_job(), new_job(), new_job()
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, [kept])
        with pytest.raises(Undone):
            await roll_back_to_savepoint(outbox, transaction, undone)
        async with outbox.savepoint(transaction):
            await outbox.store.stage(transaction, [last])
    assert await outbox.publish() == Pass(published=2)
    assert [await outbox.is_there(job.id) for job in (kept, undone, last)] == [True, False, True]


async def test_every_field_arrives_as_if_it_had_been_enqueued(outbox: Outbox) -> None:
    fields: dict[str, Any] = {
        "payload": '{"s": "\\u00e9 \U0001f600", "big": 1152921504606846977, "f": 1.5e300, "z": -0.0}',
        "queue": "mail",
        "priority": 2,
        "tenant": "acme",
        "max_attempts": 7,
        "max_crashes": 2,
        "timeout": timedelta(milliseconds=1500),
        "dedupe_for": HOUR,
        "parent_id": new_id(),
        "enqueued_by": "shop",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tags": ("a", 'b "quoted", {braced} \\'),
        "meta": '{"ticket": 4711}',
    }
    staged = await outbox.staged(key="staged", **fields)
    assert await outbox.publish() == Pass(published=1)
    direct = await outbox.env.enqueue(key="direct", **fields)
    seen, wanted = await outbox.env.describe(staged), await outbox.env.describe(direct)
    for name in wanted.__slots__:
        if name not in {"id", "run_id", "key"}:
            assert getattr(seen, name) == getattr(wanted, name), name


async def test_a_staged_deadline_and_queue_time_count_from_publication(outbox: Outbox) -> None:
    await outbox.staged(max_queue_time=HOUR)
    await outbox.staged(deadline=HOUR)
    await outbox.env.advance(2 * HOUR)
    assert await outbox.publish() == Pass(published=2)
    assert await outbox.env.driver.expire() == ()
    await outbox.env.advance(HOUR)
    assert len(await outbox.env.driver.expire()) == 2


async def test_a_delay_counts_from_staging(outbox: Outbox) -> None:
    staged_at = outbox.env.now()
    soon, later = await outbox.staged(delay=HOUR / 2), await outbox.staged(delay=2 * HOUR)
    at = await outbox.staged(run_at=staged_at + 3 * HOUR)
    await outbox.env.advance(HOUR)
    assert await outbox.publish() == Pass(published=3)
    views = [await outbox.env.describe(job_id) for job_id in (soon, later, at)]
    assert [view.state for view in views] == [State.READY, State.DELAYED, State.DELAYED]
    assert [view.run_at for view in views] == [staged_at + delay * HOUR for delay in (0.5, 2, 3)]


async def test_many_jobs_are_staged_at_once(outbox: Outbox) -> None:
    jobs = [new_job() for _ in range(30)]
    await outbox.stage(*jobs)
    assert await outbox.publish() == Pass(published=30)
    assert all([await outbox.is_there(job.id) for job in jobs])


@pytest.mark.parametrize("thing", [object(), "session", None])
async def test_what_is_no_transaction_is_refused(outbox: Outbox, thing: object) -> None:
    with pytest.raises(OutboxNoTx):
        await outbox.store.stage(thing, [new_job()])
    with pytest.raises(OutboxNoTx):
        outbox.store.stage_now(thing, [new_job()])


async def test_relays_are_woken_after_the_commit_and_not_after_a_rollback(outbox: Outbox) -> None:
    rung = asyncio.Event()
    heard: list[Wake] = []

    def on_wake(wake: Wake) -> None:
        heard.append(wake)
        if wake is Wake.STAGED:
            rung.set()

    async with outbox.env.driver.listen(on_wake):
        with pytest.raises(Undone):
            await roll_back(outbox, new_job())
        async with outbox.transaction() as transaction:
            await outbox.store.stage(transaction, [new_job(), new_job()])
            assert Wake.STAGED not in heard
        async with asyncio.timeout(10):
            await rung.wait()
    assert heard.count(Wake.STAGED) == 1
