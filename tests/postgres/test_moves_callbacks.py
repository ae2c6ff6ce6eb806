"""A job that goes to another database is told of to a webhook there, and what carries a delivery stays with it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import Acting
from app.domain.job import JobId, LimitKey
from app.domain.moving import Bucket
from app.domain.queue import QueueChange
from app.domain.state import State
from app.domain.webhook import Callback, NewWebhook
from app.drivers.webhooks import webhooks_of
from tests.conformance.runs import enlist
from tests.conformance.test_webhooks import a_webhook, carrying, store_of
from tests.postgres.test_moves import Two, ends_of, fetch, ids_in, two
from tests.support.drivers import PostgresEnv

__all__ = ["two"]

pytestmark = pytest.mark.postgres

BY = Acting(actor="ada")
DEAD = frozenset({State.CANCELLED})


async def made(env: PostgresEnv, label: str = "shop", tenant: str = "default") -> NewWebhook:
    webhook = a_webhook(label=label, tenant=tenant)
    await store_of(env).create(webhook)
    return webhook


async def test_the_end_of_a_moved_job_is_told_to_the_webhook_of_that_label(two: Two) -> None:
    source, target = two
    old, new = await made(source), await made(target)
    await made(target, "other")
    await made(target, tenant="acme")
    job_id = await source.enqueue(callback=Callback(webhook=old.id, ends=DEAD).text(), delay=timedelta(hours=1))
    assert await two.move() == {"moved": 1}
    await target.driver.cancel(job_id, reason="not needed")
    (delivery,) = (await store_of(target).deliveries(new.id)).items
    assert (delivery.ended.job_id, delivery.ended.state) == (job_id, State.CANCELLED)
    assert (await store_of(source).deliveries(old.id)).items == ()


async def test_a_job_that_could_be_told_of_to_nobody_goes_back_as_it_was(two: Two) -> None:
    source, target = two
    old = await made(source)
    await made(target, tenant="acme")
    asked = Callback(webhook=old.id, ends=DEAD).text()
    job_id, fine = await source.enqueue(callback=asked, key="k"), await source.enqueue()
    before = await source.describe(job_id)
    assert await two.move() == {"no_webhook": 1, "moved": 1}
    assert await source.describe(job_id) == before
    assert await ids_in(target) == [fine]
    assert (await target.enqueue_again(key="k")).deduped is False, "the key of what went back is free there"
    await made(target)
    await source.driver.cancel(job_id, reason="not needed")
    (delivery,) = (await store_of(source).deliveries(old.id)).items
    assert delivery.ended.job_id == job_id


async def refused_in(two: Two, count: int = 5, **fields: Any) -> list[JobId]:
    """Enqueue jobs that call back a webhook which the target has not."""
    asked = Callback(webhook=(await made(two.source)).id).text()
    return [await two.source.enqueue(callback=asked, **fields) for _ in range(count)]


async def moved_to_the_end(two: Two, *, batch: int, most: int) -> Counter[str]:
    """Move, and fail once more jobs were counted than there are: the move may have no end."""
    came: Counter[str] = Counter()
    async for step in two.control.move(queue=None, batch=batch, by=BY):
        came.update({verdict.value: count for verdict, count in step.verdicts.items()})
        assert came.total() <= most, came
    return +came


@pytest.mark.parametrize(
    ("table", "fields"),
    [
        ("ready", {}),
        ("gate", {"limits": (LimitKey("one", "k"),)}),
        ("waiting", {"delay": timedelta(hours=1)}),
    ],
)
async def test_what_goes_back_is_not_taken_again(two: Two, table: str, fields: dict[str, Any]) -> None:
    """More than two batches of them, whichever bucket they come from."""
    jobs = await refused_in(two, **fields)
    assert await moved_to_the_end(two, batch=2, most=5) == {"no_webhook": 5}
    rows = await fetch(two.source, f"select job_id from outlast.{table} order by job_id")
    assert [row["job_id"] for row in rows] == sorted(jobs)


async def test_what_goes_back_is_behind_what_is_ready(two: Two) -> None:
    jobs = await refused_in(two)
    assert (await ends_of(two.source).take(Bucket.READY, target="another", batch=5)).taken == 5
    ready = [await two.source.enqueue() for _ in range(3)]
    await ends_of(two.source).give_back([one.id for one in await ends_of(two.source).left("another")])
    claimed = [job.token.job_id for job in await two.source.claim(await enlist(two.source), room=10)]
    assert claimed == [*ready, *jobs]


async def test_what_a_move_that_was_cut_left_goes_back_and_is_counted_once(two: Two) -> None:
    await refused_in(two)
    await ends_of(two.source).take(Bucket.READY, target=await ends_of(two.target).identity(), batch=3)
    assert await moved_to_the_end(two, batch=2, most=5) == {"no_webhook": 5}


async def test_what_went_back_and_was_lined_up_is_not_taken_again(two: Two) -> None:
    """Its queue is made fair while the move runs: the jobs are in the gate when that is looked at."""
    jobs = await refused_in(two)
    came: Counter[str] = Counter()
    async for step in two.control.move(queue=None, batch=2, by=BY):
        came.update({verdict.value: count for verdict, count in step.verdicts.items()})
        if came.total() == len(jobs) and step.verdicts:
            await two.source.driver.set_queue("default", QueueChange(is_fair=True))
            assert len(await fetch(two.source, "select from outlast.gate")) == len(jobs)
    assert came == {"no_webhook": 5}


async def test_a_callback_to_a_webhook_that_is_gone_keeps_no_job_from_going(two: Two) -> None:
    source, target = two
    old = await made(source)
    job_id = await source.enqueue(callback=Callback(webhook=old.id).text())
    await store_of(source).delete(old.id)
    assert await two.move() == {"moved": 1}
    assert await ids_in(target) == [job_id]


async def test_another_tenants_webhook_is_none_of_a_jobs(two: Two) -> None:
    source, target = two
    theirs = await made(source, tenant="globex")
    job_id = await source.enqueue(callback=Callback(webhook=theirs.id).text(), tenant="acme")
    assert await two.move() == {"moved": 1}
    assert await ids_in(target) == [job_id]


async def test_what_carries_a_delivery_stays_with_it(two: Two) -> None:
    source, target = two
    old = await made(source)
    await made(target)
    told = await source.enqueue(callback=Callback(webhook=old.id).text())
    await source.driver.cancel(told, reason="not needed")
    store = webhooks_of(source.driver)
    assert store is not None
    assert await store.carry(carrying) == 1
    assert await two.move() == {"carries": 1}
    (delivery,) = (await store.deliveries(old.id)).items
    assert delivery.carrier in await ids_in(source)
