"""Webhooks beside the jobs of a memory driver: the readable reference for what a store of them does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.job import JobId, NewJob
from ...domain.state import State
from ...domain.webhook import (
    GONE,
    MOST_WEBHOOKS,
    TRIES_KEPT,
    Delivery,
    DeliveryId,
    DeliveryPage,
    DeliveryState,
    NewWebhook,
    SecretRef,
    Try,
    Webhook,
    WebhookChange,
    WebhookId,
    stale,
    still_pending,
    too_many_webhooks,
    unknown_delivery,
    unknown_webhook,
)
from ..webhooks import WebhookStore
from .audit import keep
from .enqueue import enqueue_at
from .rows import Finished
from .store import Store
from .webhook_rows import Telling, is_pending


class MemoryWebhooks:
    """A `WebhookStore` in a memory driver. What each verb does is said by the protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[WebhookId, Webhook] = {}

    async def create(self, webhook: NewWebhook, *, audit: AuditEntry | None = None) -> Webhook:
        """Store a new webhook."""
        with self._store.statement(audit) as now:
            if webhook.id not in self._rows:
                if sum(row.tenant == webhook.tenant for row in self._rows.values()) >= MOST_WEBHOOKS:
                    raise too_many_webhooks()
                self._rows[webhook.id] = _made(webhook, now)
            keep(self._store, audit, now)
            return self._shown(webhook.id, now)

    async def webhooks(self, *, tenant: str | None = None, limit: int = 1_000) -> tuple[Webhook, ...]:
        """Give webhooks."""
        with self._store.statement() as now:
            found = [self._shown(row.id, now) for row in self._rows.values() if tenant in {None, row.tenant}]
            return tuple(sorted(found, key=lambda row: (row.created_at, row.id), reverse=True)[:limit])

    async def webhook(self, webhook_id: WebhookId, *, tenant: str | None = None) -> Webhook | None:
        """Give one."""
        with self._store.statement() as now:
            return self._shown(webhook_id, now) if self._is_seen(webhook_id, tenant) else None

    async def change(
        self,
        webhook_id: WebhookId,
        change: WebhookChange,
        *,
        version: int | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Webhook:
        """Change a webhook."""
        with self._store.statement(audit) as now:
            row = self._seen(webhook_id, tenant)
            if version not in {None, row.version}:
                raise stale(webhook_id)
            changed = _changed(row, change, now)
            if changed != row:
                self._rows[webhook_id] = replace(changed, version=row.version + 1)
            keep(self._store, audit if changed != row or audit is None else audit.came_to(UNCHANGED), now)
            return self._shown(webhook_id, now)

    async def rotate(
        self,
        webhook_id: WebhookId,
        secret: SecretRef,
        *,
        overlap: timedelta,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Webhook:
        """Let it sign with its next secret."""
        with self._store.statement(audit) as now:
            row = self._seen(webhook_id, tenant)
            is_new = secret.number == row.secret.number + 1
            if is_new:
                self._rows[webhook_id] = replace(
                    row, previous=row.secret, previous_until=now + overlap, secret=secret, rotated_at=now
                )
            keep(self._store, audit if is_new or audit is None else audit.came_to(UNCHANGED), now)
            return self._shown(webhook_id, now)

    async def delete(
        self, webhook_id: WebhookId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> None:
        """Delete it with its deliveries."""
        with self._store.statement(audit) as now:
            del self._rows[self._seen(webhook_id, tenant).id]
            for telling in [one for one in self._tellings() if one.webhook == webhook_id]:
                del self._store.deliveries[telling.id]
            keep(self._store, audit, now)

    async def deliveries(
        self,
        webhook_id: WebhookId,
        *,
        tenant: str | None = None,
        before: tuple[datetime, DeliveryId] | None = None,
        limit: int = 50,
    ) -> DeliveryPage:
        """Give one page."""
        with self._store.statement():
            found = [
                self._delivery(one)
                for one in sorted(self._tellings(), key=_place, reverse=True)
                if one.webhook == webhook_id
                and tenant in {None, one.ended.tenant}
                and (before is None or _place(one) < before)
            ]
            items = tuple(found[:limit])
            rest = None if len(found) <= limit else (items[-1].ended.ended_at, items[-1].id)
            return DeliveryPage(items=items, next_before=rest)

    async def delivery(self, delivery_id: DeliveryId, *, tenant: str | None = None) -> Delivery | None:
        """Give one delivery."""
        with self._store.statement():
            telling = self._store.deliveries.get(delivery_id)
            return None if telling is None or tenant not in {None, telling.ended.tenant} else self._delivery(telling)

    async def resend(
        self,
        webhook_id: WebhookId,
        delivery_id: DeliveryId,
        *,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Delivery:
        """Have it carried once more."""
        with self._store.statement(audit) as now:
            telling = self._store.deliveries.get(delivery_id)
            if telling is None or telling.webhook != webhook_id or tenant not in {None, telling.ended.tenant}:
                raise unknown_delivery(delivery_id)
            if self._delivery(telling).state is DeliveryState.PENDING:
                raise still_pending(delivery_id)
            telling.carrier, telling.state = None, DeliveryState.PENDING
            keep(self._store, audit, now)
            return self._delivery(telling)

    async def carry(self, make: Callable[[Delivery], NewJob], *, batch: int = 500) -> int:
        """Make jobs of deliveries."""
        with self._store.statement() as now:
            uncarried = [one for one in self._tellings() if is_pending(one) and one.carrier is None]
            taken = sorted(uncarried, key=_place)[:batch]
            for telling in taken:
                job = make(self._delivery(telling))
                enqueue_at(self._store, now, job, is_part=True)
                telling.carrier = job.id
            return len(taken)

    async def note(
        self, delivery_id: DeliveryId, carrier: JobId, tried: Try, state: DeliveryState, *, gone: bool = False
    ) -> bool:
        """Note a try."""
        with self._store.statement() as now:
            telling = self._store.deliveries.get(delivery_id)
            if telling is None or telling.carrier != carrier:
                return False
            telling.state, telling.tried = state, telling.tried + 1
            telling.tries = (*telling.tries, tried)[-TRIES_KEPT:]
            row = self._rows.get(telling.webhook)
            if gone and row is not None and not row.is_disabled:
                self._rows[row.id] = replace(row, disabled_at=now, disabled_why=GONE, version=row.version + 1)
            return True

    def _tellings(self) -> list[Telling]:
        return list(self._store.deliveries.values())

    def _delivery(self, telling: Telling) -> Delivery:
        carrier = None if telling.carrier is None else self._store.tokens.get(telling.carrier)
        has_failed = isinstance(carrier, Finished) and carrier.state is not State.DONE
        return telling.shown(DeliveryState.FAILED if is_pending(telling) and has_failed else telling.state)

    def _is_seen(self, webhook_id: WebhookId, tenant: str | None) -> bool:
        row = self._rows.get(webhook_id)
        return row is not None and tenant in {None, row.tenant}

    def _seen(self, webhook_id: WebhookId, tenant: str | None) -> Webhook:
        if not self._is_seen(webhook_id, tenant):
            raise unknown_webhook(webhook_id)
        return self._rows[webhook_id]

    def _shown(self, webhook_id: WebhookId, now: datetime) -> Webhook:
        row = self._rows[webhook_id]
        if row.previous_until is None or row.previous_until > now:
            return row
        return replace(row, previous=None, previous_until=None)


def _place(telling: Telling) -> tuple[datetime, DeliveryId]:
    return telling.ended.ended_at, telling.id


def _made(webhook: NewWebhook, now: datetime) -> Webhook:
    return Webhook(
        id=webhook.id,
        tenant=webhook.tenant,
        label=webhook.label,
        url=webhook.url,
        secret=SecretRef(number=1, master=webhook.master),
        previous=None,
        previous_until=None,
        created_at=now,
        created_by=webhook.created_by,
        rotated_at=None,
        disabled_at=None,
        disabled_why=None,
        version=1,
    )


def _changed(row: Webhook, change: WebhookChange, now: datetime) -> Webhook:
    changed = replace(row, label=change.label or row.label, url=change.url or row.url)
    if change.is_disabled is None or change.is_disabled is row.is_disabled:
        return changed
    if not change.is_disabled:
        return replace(changed, disabled_at=None, disabled_why=None)
    return replace(changed, disabled_at=now, disabled_why=change.why or "disabled by hand")


_: type[WebhookStore] = MemoryWebhooks
