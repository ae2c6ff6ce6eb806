"""Webhooks and deliveries: every end that somebody asked to be told of leaves one, in its own commit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import Action, AuditEntry, AuditQuery, Target
from app.domain.errors import JobStateConflict, NotFound, PreconditionFailed
from app.domain.job import NewJob
from app.domain.outcome import Completed
from app.domain.retention import Chore, Retention
from app.domain.state import State
from app.domain.webhook import (
    CARRIER,
    DELIVERY_KEPT,
    GONE,
    TRIES_KEPT,
    Callback,
    Delivery,
    DeliveryState,
    NewWebhook,
    SecretRef,
    Try,
    WebhookChange,
    new_webhook_id,
)
from app.drivers.webhooks import WebhookStore, webhooks_of
from tests.conformance.endings import Ending, every_ending
from tests.conformance.gated import admit, declare, limited
from tests.support.drivers import QUEUE, DriverEnv, new_id, new_job

HOUR = timedelta(hours=1)
URL = "https://hooks.example.com/jobs"


def store_of(env: DriverEnv) -> WebhookStore:
    found = webhooks_of(env.driver)
    assert found is not None
    return found


def a_webhook(**fields: Any) -> NewWebhook:
    given = {"tenant": "default", "label": "shop", "url": URL, "master": "m1", "created_by": "ada"}
    return NewWebhook(id=new_webhook_id(), **(given | fields))


def carrying(delivery: Delivery) -> NewJob:
    return new_job(CARRIER, payload=f'{{"delivery":"{delivery.id}"}}', queue=QUEUE, tenant=delivery.ended.tenant)


def a_try(env: DriverEnv, status: int | None = 200, error: str | None = None) -> Try:
    return Try(at=env.now(), status=status, error=error, duration_ms=12)


async def tellings(env: DriverEnv, webhook: NewWebhook) -> tuple[Delivery, ...]:
    return (await store_of(env).deliveries(webhook.id)).items


async def delivered_once(env: DriverEnv) -> tuple[NewWebhook, Delivery]:
    """Give a webhook with one delivery that a carrier has, not tried yet."""
    webhook = a_webhook()
    await store_of(env).create(webhook)
    token = (await env.running(callback=Callback(webhook=webhook.id).text())).token
    await env.close_attempt(token, Completed())
    assert await store_of(env).carry(carrying) == 1
    (delivery,) = await tellings(env, webhook)
    return webhook, delivery


@every_ending
async def test_every_end_is_told_to_who_asked_for_it(env: DriverEnv, ending: Ending) -> None:
    webhook = a_webhook()
    await store_of(env).create(webhook)
    assert not (await env.driver.due()).must_carry
    job_id = await ending(env, {"callback": Callback(webhook=webhook.id, url=f"{URL}/7").text()})
    job = await env.describe(job_id)
    (told,) = await tellings(env, webhook)
    assert (told.ended.job_id, told.ended.state, told.ended.reason) == (job_id, job.state, job.state_reason)
    assert (told.ended.attempt, told.ended.ended_at) == (job.counters.attempt, env.now())
    assert (told.ended.name, told.ended.queue, told.ended.run_id) == (job.name, job.queue, job.run_id)
    assert (told.url, told.webhook, told.state) == (f"{URL}/7", webhook.id, DeliveryState.PENDING)
    assert (told.carrier, told.tried, told.tries) == (None, 0, ())
    assert (await env.driver.due()).must_carry


@every_ending
async def test_an_end_that_nobody_asked_about_is_told_to_nobody(env: DriverEnv, ending: Ending) -> None:
    webhook = a_webhook()
    job_id = await ending(env, {})
    ended = (await env.describe(job_id)).state
    others = frozenset({State.DONE, State.DEAD, State.CANCELLED} - {ended})
    await ending(env, {"callback": Callback(webhook=webhook.id, ends=others).text()})
    assert await tellings(env, webhook) == ()
    assert not (await env.driver.due()).must_carry


async def test_a_claim_says_whether_the_end_is_to_be_told(env: DriverEnv) -> None:
    worker = await env.register()
    asked = await env.running(worker, callback=Callback(webhook=new_webhook_id()).text())
    await env.close_attempt(asked.token, Completed())
    plain = await env.running(worker)
    assert (asked.calls_back, plain.calls_back) == (True, False)


async def test_a_job_that_ends_twice_is_told_of_twice(env: DriverEnv) -> None:
    webhook = a_webhook()
    worker = await env.register()
    callback = Callback(webhook=webhook.id).text()
    job_id = await env.enqueue(callback=callback)
    await env.driver.cancel(job_id, reason="not yet")
    await env.driver.retry(job_id)
    await env.advance(HOUR)
    await env.close_attempt((await env.claim_one(await env.register())).token, Completed())
    assert [each.ended.state for each in await tellings(env, webhook)] == [State.DONE, State.CANCELLED]
    assert worker


async def test_a_staged_job_keeps_its_callback(env: DriverEnv) -> None:
    webhook = a_webhook()
    job = new_job(callback=Callback(webhook=webhook.id).text(), key="k", dedupe_for=HOUR, source_id=new_id())
    await env.driver.enqueue(job)
    await env.close_attempt((await env.claim_one(await env.register())).token, Completed())
    assert [each.ended.job_id for each in await tellings(env, webhook)] == [job.id]


async def test_a_carrier_is_made_once(env: DriverEnv) -> None:
    webhook, delivery = await delivered_once(env)
    assert await store_of(env).carry(carrying) == 0
    assert not (await env.driver.due()).must_carry
    assert delivery.carrier is not None
    carrier = await env.describe(delivery.carrier)
    assert (carrier.name, carrier.state, carrier.payload) == (CARRIER, State.READY, f'{{"delivery":"{delivery.id}"}}')
    assert await store_of(env).delivery(delivery.id) == delivery
    assert await store_of(env).delivery(delivery.id, tenant="acme") is None
    assert (await store_of(env).deliveries(webhook.id, tenant="acme")).items == ()


async def test_tries_are_noted_by_the_job_that_carries_alone(env: DriverEnv) -> None:
    webhook, delivery = await delivered_once(env)
    store = store_of(env)
    assert delivery.carrier is not None
    assert not await store.note(delivery.id, new_job().id, a_try(env), DeliveryState.DELIVERED)
    failed = a_try(env, 500, "answered 500")
    assert await store.note(delivery.id, delivery.carrier, failed, DeliveryState.PENDING)
    await env.advance(HOUR)
    assert await store.note(delivery.id, delivery.carrier, a_try(env), DeliveryState.DELIVERED)
    (found,) = await tellings(env, webhook)
    assert (found.state, found.tried, found.tries) == (DeliveryState.DELIVERED, 2, (failed, a_try(env)))
    for _ in range(TRIES_KEPT):
        await store.note(delivery.id, delivery.carrier, failed, DeliveryState.FAILED)
    (found,) = await tellings(env, webhook)
    assert (found.state, found.tried, found.tries) == (DeliveryState.FAILED, 52, (failed,) * TRIES_KEPT)
    kept = await store.webhook(webhook.id)
    assert kept is not None
    assert (kept.disabled_at, kept.version) == (None, 1), "only a receiver that says it is gone disables it"


async def test_a_delivery_is_sent_again_under_its_id_once_it_is_over(env: DriverEnv) -> None:
    webhook, delivery = await delivered_once(env)
    store = store_of(env)
    assert delivery.carrier is not None
    with pytest.raises(JobStateConflict):
        await store.resend(webhook.id, delivery.id)
    with pytest.raises(NotFound):
        await store.resend(new_webhook_id(), delivery.id)
    with pytest.raises(NotFound):
        await store.resend(webhook.id, delivery.id, tenant="acme")
    await store.note(delivery.id, delivery.carrier, a_try(env), DeliveryState.DELIVERED)
    audit = an_entry(Action.WEBHOOK_RESEND, webhook)
    again = await store.resend(webhook.id, delivery.id, tenant="default", audit=audit)
    assert (again.id, again.state, again.carrier, again.tried) == (delivery.id, DeliveryState.PENDING, None, 1)
    assert (await env.driver.due()).must_carry
    assert await store.carry(carrying) == 1
    (found,) = await tellings(env, webhook)
    assert found.carrier not in {None, delivery.carrier}
    assert not await store.note(delivery.id, delivery.carrier, a_try(env), DeliveryState.FAILED)
    rows = (await env.driver.audit(AuditQuery(target=webhook.id))).items
    assert [(row.action, row.tenant) for row in rows] == [("webhook.resend", "default")]


async def test_a_delivery_has_failed_once_its_carrier_is_dead_or_cancelled(env: DriverEnv) -> None:
    webhook, delivery = await delivered_once(env)
    assert delivery.carrier is not None
    await env.driver.cancel(delivery.carrier, reason="no")
    (found,) = await tellings(env, webhook)
    assert found.state is DeliveryState.FAILED
    assert (await store_of(env).resend(webhook.id, delivery.id)).state is DeliveryState.PENDING


async def test_deliveries_are_given_page_by_page(env: DriverEnv) -> None:
    webhook = a_webhook()
    for _ in range(3):
        for _ in range(2):
            await env.driver.cancel(await env.enqueue(callback=Callback(webhook=webhook.id).text()), reason="no")
        await env.advance(HOUR)
    seen: list[Delivery] = []
    before = None
    for _ in range(2):  # the first page ends between two of one instant
        page = await store_of(env).deliveries(webhook.id, before=before, limit=3)
        seen += page.items
        before = page.next_before
    assert before is None
    assert len({each.id for each in seen}) == 6
    assert seen == sorted(seen, key=lambda each: (each.ended.ended_at, each.id), reverse=True)


def an_entry(action: Action, webhook: NewWebhook) -> AuditEntry:
    return AuditEntry(
        id=new_id(), actor="ada", action=action, target_kind=Target.WEBHOOK, target=webhook.id, tenant=webhook.tenant
    )


async def test_a_webhook_made_twice_is_one(env: DriverEnv) -> None:
    webhook, store = a_webhook(), store_of(env)
    entry = an_entry(Action.WEBHOOK_CREATE, webhook)
    made = await store.create(webhook, audit=entry)
    assert await store.create(webhook, audit=entry) == made
    assert (made.url, made.label, made.created_at, made.created_by) == (URL, "shop", env.now(), "ada")
    assert (made.secret, made.previous, made.version) == (SecretRef(number=1, master="m1"), None, 1)
    assert not made.is_disabled
    assert await store.webhooks() == (made,)
    assert await store.webhooks(tenant="acme") == ()
    assert await store.webhook(webhook.id, tenant="default") == made
    assert await store.webhook(webhook.id, tenant="acme") is None
    assert [row.action for row in (await env.driver.audit(AuditQuery(target=webhook.id))).items] == ["webhook.create"]


async def test_a_webhook_is_changed_in_the_version_that_was_read(env: DriverEnv) -> None:
    webhook, store = a_webhook(), store_of(env)
    await store.create(webhook)
    changed = await store.change(webhook.id, WebhookChange(label="new", url=f"{URL}/new"), version=1)
    assert (changed.label, changed.url, changed.version) == ("new", f"{URL}/new", 2)
    assert await store.change(webhook.id, WebhookChange(label="new"), version=2) == changed
    with pytest.raises(PreconditionFailed):
        await store.change(webhook.id, WebhookChange(label="old"), version=1)
    with pytest.raises(NotFound):
        await store.change(webhook.id, WebhookChange(label="old"), tenant="acme")
    off = await store.change(webhook.id, WebhookChange(is_disabled=True, why="it moves"))
    assert (off.disabled_at, off.disabled_why, off.version) == (env.now(), "it moves", 3)
    assert await store.change(webhook.id, WebhookChange(is_disabled=True, why="twice")) == off
    on = await store.change(webhook.id, WebhookChange(is_disabled=False))
    assert (on.is_disabled, on.disabled_why, on.version) == (False, None, 4)


async def test_two_secrets_sign_for_as_long_as_they_overlap(env: DriverEnv) -> None:
    webhook, store = a_webhook(), store_of(env)
    made = await store.create(webhook)
    second = SecretRef(number=2, master="m2")
    turned = await store.rotate(webhook.id, second, overlap=HOUR)
    assert (turned.signing, turned.previous_until) == ((second, made.secret), env.now() + HOUR)
    assert await store.rotate(webhook.id, second, overlap=HOUR) == turned
    with pytest.raises(NotFound):
        await store.rotate(webhook.id, replace(second, number=3), overlap=HOUR, tenant="acme")
    await env.advance(HOUR)
    found = await store.webhook(webhook.id)
    assert found is not None
    assert (found.signing, found.previous_until) == ((second,), None)


async def test_a_receiver_that_is_gone_disables_its_webhook(env: DriverEnv) -> None:
    webhook, delivery = await delivered_once(env)
    store = store_of(env)
    assert delivery.carrier is not None
    await store.note(delivery.id, delivery.carrier, a_try(env, 410), DeliveryState.FAILED, gone=True)
    found = await store.webhook(webhook.id)
    assert found is not None
    assert (found.disabled_at, found.disabled_why, found.version) == (env.now(), GONE, 2)


async def test_a_deleted_webhook_takes_its_deliveries_with_it(env: DriverEnv) -> None:
    webhook, _ = await delivered_once(env)
    store = store_of(env)
    with pytest.raises(NotFound):
        await store.delete(webhook.id, tenant="acme")
    await store.delete(webhook.id, tenant="default", audit=an_entry(Action.WEBHOOK_DELETE, webhook))
    assert await store.webhook(webhook.id) is None
    assert await tellings(env, webhook) == ()
    with pytest.raises(NotFound):
        await store.delete(webhook.id)


async def test_deliveries_are_kept_for_a_while(env: DriverEnv) -> None:
    webhook, _ = await delivered_once(env)
    await env.advance(DELIVERY_KEPT)
    assert await env.driver.count_over(Chore.DELIVERIES, Retention()) == 0
    await env.advance(timedelta(seconds=1))
    assert await env.driver.count_over(Chore.DELIVERIES, Retention()) == 1
    assert (await env.driver.tidy(Chore.DELIVERIES, Retention())).deleted == 1
    assert await tellings(env, webhook) == ()


async def test_each_delivery_has_a_carrier_of_its_own(env: DriverEnv) -> None:
    webhook = a_webhook()
    for _ in range(3):
        await env.driver.cancel(await env.enqueue(callback=Callback(webhook=webhook.id).text()), reason="no")
    assert await store_of(env).carry(carrying, batch=2) == 2
    assert await store_of(env).carry(carrying, batch=2) == 1
    carriers = {each.carrier: each.id for each in await tellings(env, webhook)}
    assert len(carriers) == 3
    for carrier, delivery_id in carriers.items():
        assert carrier is not None
        assert (await env.describe(carrier)).payload == f'{{"delivery":"{delivery_id}"}}'


async def test_an_admission_says_whether_the_end_is_to_be_told(env: DriverEnv) -> None:
    await declare(env, 2)
    await limited(env, callback=Callback(webhook=a_webhook().id).text())
    await limited(env)
    assert [job.calls_back for job in await admit(env, await env.register())] == [True, False]
