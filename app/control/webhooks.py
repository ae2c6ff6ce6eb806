"""Webhooks as people handle them: make one, change it, give it a new secret, see what was told, tell it again.

A secret is answered by the calls that make one, and by no other; it is derived, so no store is asked for it. Authority
is the caller's: `tenant` is the only one a call may touch, None for all. Called by the HTTP routes, the pages and the
command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..domain.audit import Acting, Action, AuditEntry, Target
from ..domain.errors import CallbackRefused, NotImplementedYet
from ..domain.issued import DEFAULT_OVERLAP, check_overlap, turned
from ..domain.job import DEFAULT_TENANT
from ..domain.text import read_uuid
from ..domain.webhook import (
    Delivery,
    DeliveryId,
    DeliveryPage,
    NewWebhook,
    SecretRef,
    Webhook,
    WebhookChange,
    WebhookId,
    check_webhook,
    new_webhook_id,
    stale,
    unknown_delivery,
    unknown_webhook,
)
from ..domain.webhook_address import Allowed, refuse_url
from ..domain.webhook_secret import Masters
from ..drivers.webhooks import WebhookStore
from ..steps.repeat import until_known
from .acting import done_before, entry_of
from .render import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedWebhook:
    """A webhook with the secret that signs for it from now on. `repr` never shows it."""

    webhook: Webhook
    secret: str

    def __repr__(self) -> str:
        """Name the webhook alone."""
        return f"IssuedWebhook({self.webhook.id})"


class WebhookControl:
    """The verbs on webhooks. Without `masters` none can be made, and what there is can be seen."""

    def __init__(self, store: WebhookStore | None, *, masters: Masters | None, allowed: Allowed) -> None:
        self._found = store
        self._masters_found = masters
        self._allowed = allowed

    async def create(self, *, label: str, url: str, tenant: str | None, by: Acting) -> IssuedWebhook:
        """Make a webhook; its secret is answered here.

        Raises:
            CallbackRefused: the address may not be called, or this service has no master key.
            RequestInvalid: the label cannot be shown, or the tenant has too many.
        """
        masters = self._masters
        self._check(label, url)
        webhook = NewWebhook(
            id=new_webhook_id(),
            tenant=tenant or DEFAULT_TENANT,
            label=label,
            url=url,
            master=masters.newest,
            created_by=by.actor,
        )
        audit = _entry(by, Action.WEBHOOK_CREATE, webhook.id, webhook.tenant, label=label, url=url)
        made = await until_known(lambda: self._store.create(webhook, audit=audit))
        return IssuedWebhook(webhook=made, secret=masters.secret(made.id, made.secret))

    async def list(self, *, tenant: str | None) -> tuple[Webhook, ...]:
        """Give webhooks, the newest first; at most 1,000."""
        return await self._store.webhooks(tenant=tenant)

    async def find(self, webhook_id: str, *, tenant: str | None) -> Webhook:
        """Give one. Raises `NOT_FOUND`."""
        found = await self._store.webhook(WebhookId(webhook_id), tenant=tenant)
        if found is None:
            raise unknown_webhook(webhook_id)
        return found

    async def change(
        self,
        webhook_id: str,
        change: WebhookChange,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None,
        by: Acting,
    ) -> Webhook:
        """Change label or address, disable or enable it.

        Raises:
            NotFound: there is none to be seen.
            PreconditionFailed: it is in none of the `versions`.
            CallbackRefused: the address may not be called.
        """
        self._check(change.label, change.url)
        before = await self.find(webhook_id, tenant=tenant)
        if done_before(by) is not None:
            return before
        if versions is not None and str(before.version) not in versions:
            raise stale(before.id)
        version = None if versions is None else before.version
        audit = _entry(
            by,
            Action.WEBHOOK_UPDATE,
            before.id,
            before.tenant,
            label=change.label,
            url=change.url,
            is_disabled=change.is_disabled,
        )
        return await self._store.change(before.id, change, version=version, tenant=tenant, audit=audit)

    async def rotate(
        self,
        webhook_id: str,
        *,
        tenant: str | None,
        by: Acting,
        overlap: timedelta = DEFAULT_OVERLAP,
        replaces: int | None = None,
    ) -> IssuedWebhook:
        """Give a webhook its next secret; the one before goes on signing beside it for `overlap`.

        `replaces` is the number of the secret that is meant: asked twice, the first one alone is done.

        Raises:
            NotFound: there is none to be seen.
            PreconditionFailed: another secret than `replaces` says signs by now.
            CallbackRefused: this service has no master key.
        """
        masters = self._masters
        check_overlap(overlap)
        before = await self.find(webhook_id, tenant=tenant)
        if replaces not in {None, before.secret.number}:
            raise turned(f"webhook {before.id}", f"number {before.secret.number}")
        ref = SecretRef(number=before.secret.number + 1, master=masters.newest)
        overlap_ms = round(overlap.total_seconds() * 1000)
        audit = _entry(by, Action.WEBHOOK_ROTATE, before.id, before.tenant, label=before.label, overlap_ms=overlap_ms)
        made = await until_known(
            lambda: self._store.rotate(before.id, ref, overlap=overlap, tenant=tenant, audit=audit)
        )
        if replaces is not None and made.secret.number != ref.number:
            raise turned(f"webhook {made.id}", f"number {made.secret.number}")
        return IssuedWebhook(webhook=made, secret=masters.secret(made.id, made.secret))

    async def delete(self, webhook_id: str, *, tenant: str | None, by: Acting) -> None:
        """Delete a webhook and what is known of its deliveries. Raises `NOT_FOUND`."""
        if done_before(by) is not None:
            return
        before = await self.find(webhook_id, tenant=tenant)
        audit = _entry(by, Action.WEBHOOK_DELETE, before.id, before.tenant, label=before.label, url=before.url)
        await self._store.delete(before.id, tenant=tenant, audit=audit)

    async def deliveries(
        self,
        webhook_id: str,
        *,
        tenant: str | None,
        before: tuple[datetime, DeliveryId] | None = None,
        limit: int = 50,
    ) -> DeliveryPage:
        """Give one page of deliveries, the newest first. Raises `NOT_FOUND` for a webhook that is not to be seen."""
        webhook = await self.find(webhook_id, tenant=tenant)
        return await self._store.deliveries(webhook.id, tenant=tenant, before=before, limit=limit)

    async def resend(self, webhook_id: str, delivery_id: str, *, tenant: str | None, by: Acting) -> Delivery:
        """Tell it once more, under the same message id.

        Raises:
            NotFound: there is no such delivery of the webhook to be seen.
            JobStateConflict: it is on its way.
        """
        webhook = await self.find(webhook_id, tenant=tenant)
        found = read_uuid(delivery_id)
        if found is None:
            raise unknown_delivery(repr(delivery_id[:64]))
        if done_before(by) is not None and (known := await self._store.delivery(DeliveryId(found), tenant=tenant)):
            return known
        audit = _entry(by, Action.WEBHOOK_RESEND, webhook.id, webhook.tenant, delivery=str(found))
        return await self._store.resend(webhook.id, DeliveryId(found), tenant=tenant, audit=audit)

    def _check(self, label: str | None, url: str | None) -> None:
        check_webhook(label, url)
        if url is not None:
            refuse_url(url, self._allowed)

    @property
    def _store(self) -> WebhookStore:
        if self._found is None:
            raise NotImplementedYet("this store has no webhooks", fix="set OUTLAST_DATABASE_URL to postgresql://…")
        return self._found

    @property
    def _masters(self) -> Masters:
        if self._masters_found is None:
            raise CallbackRefused(
                "this service has no master key to derive secrets of webhooks from",
                fix="make one with `openssl rand -hex 32`, name its file in OUTLAST_CALLBACK_KEY_FILE of the API and of"
                " workers, and start them again",
            )
        return self._masters_found


def webhook_document(webhook: Webhook) -> Document:
    """Give the representation of a webhook; it never has a secret."""
    return {
        "id": webhook.id,
        "tenant": webhook.tenant,
        "label": webhook.label,
        "url": webhook.url,
        "is_disabled": webhook.is_disabled,
        "disabled_at": webhook.disabled_at,
        "disabled_reason": webhook.disabled_why,
        "secret_number": webhook.secret.number,
        "previous_until": webhook.previous_until,
        "created_at": webhook.created_at,
        "created_by": webhook.created_by,
        "rotated_at": webhook.rotated_at,
    }


def delivery_document(delivery: Delivery) -> Document:
    """Give the representation of a delivery with its newest tries, the newest last."""
    return {
        "id": str(delivery.id),
        "webhook_id": delivery.webhook,
        "message_id": f"msg_{delivery.id.hex}",
        "url": delivery.url,
        "state": delivery.state.value,
        "job_id": str(delivery.ended.job_id),
        "job_name": delivery.ended.name,
        "job_state": delivery.ended.state.value,
        "ended_at": delivery.ended.ended_at,
        "carrier_id": None if delivery.carrier is None else str(delivery.carrier),
        "attempts": delivery.tried,
        "tries": [
            {"at": tried.at, "status": tried.status, "error": tried.error, "duration_ms": tried.duration_ms}
            for tried in delivery.tries
        ],
    }


def _entry(by: Acting, action: Action, webhook_id: str, tenant: str, **details: object) -> AuditEntry | None:
    return entry_of(by, action, Target.WEBHOOK, webhook_id, tenant=tenant, details=details)
