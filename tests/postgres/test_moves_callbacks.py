"""A job that goes to another database is told of to a webhook there, and what carries a delivery stays with it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.state import State
from app.domain.webhook import Callback, NewWebhook
from app.drivers.webhooks import webhooks_of
from tests.conformance.test_webhooks import a_webhook, carrying, store_of
from tests.postgres.test_moves import Two, ids_in, two
from tests.support.drivers import PostgresEnv

__all__ = ["two"]

pytestmark = pytest.mark.postgres

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
