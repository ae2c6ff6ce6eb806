"""The vocabulary of webhooks: a store keeps them beside the jobs, with what is to be told to them.

Deliveries are written by the verbs that end jobs, in their commits; here they are handed to jobs that carry them, and
their tries are noted. Apart from the job store's protocol because only callbacks ask for any of it. Implemented by the
drivers that hold jobs. Called by `control`, `jobs`, the worker and `webhooks`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from ..domain.audit import AuditEntry
from ..domain.job import JobId, NewJob
from ..domain.webhook import (
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
)


class WebhookStore(Protocol):
    """A store of webhooks and deliveries. What changes a webhook leaves its row of the audit in the same commit.

    `tenant` is the only one a call may touch, None for all; another tenant's webhook answers as an absent one.
    """

    async def create(self, webhook: NewWebhook, *, audit: AuditEntry | None = None) -> Webhook:
        """Store a new webhook, durable when this returns; repeating it with the same id is safe.

        Raises:
            RequestInvalid: its tenant has `MOST_WEBHOOKS` already.
        """
        ...

    async def webhooks(self, *, tenant: str | None = None, limit: int = 1_000) -> tuple[Webhook, ...]:
        """Give webhooks, the newest first."""
        ...

    async def webhook(self, webhook_id: WebhookId, *, tenant: str | None = None) -> Webhook | None:
        """Give one; None when absent."""
        ...

    async def change(
        self,
        webhook_id: WebhookId,
        change: WebhookChange,
        *,
        version: int | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Webhook:
        """Change a webhook; what it is already stays, and its version with it.

        Raises:
            NotFound: absent.
            PreconditionFailed: it is not in `version` any more.
        """
        ...

    async def rotate(
        self,
        webhook_id: WebhookId,
        secret: SecretRef,
        *,
        overlap: timedelta,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Webhook:
        """Let a webhook sign with the secret after its present one, which goes on signing for `overlap`.

        Nothing changes unless `secret` has the number after the present one's, so that repeating it is safe.
        `NOT_FOUND` when absent.
        """
        ...

    async def delete(
        self, webhook_id: WebhookId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> None:
        """Delete a webhook and its deliveries; jobs that name it tell nobody from now on. `NOT_FOUND` when absent."""
        ...

    async def deliveries(
        self,
        webhook_id: WebhookId,
        *,
        tenant: str | None = None,
        before: tuple[datetime, DeliveryId] | None = None,
        limit: int = 50,
    ) -> DeliveryPage:
        """Give one page of a webhook's deliveries, the newest first; empty for an absent webhook."""
        ...

    async def delivery(self, delivery_id: DeliveryId, *, tenant: str | None = None) -> Delivery | None:
        """Give one delivery; None when absent."""
        ...

    async def resend(
        self,
        webhook_id: WebhookId,
        delivery_id: DeliveryId,
        *,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Delivery:
        """Have a delivery carried once more, under its own id.

        Raises:
            NotFound: absent, or another webhook's.
            JobStateConflict: it is on its way.
        """
        ...

    async def carry(self, make: Callable[[Delivery], NewJob], *, batch: int = 500) -> int:
        """Make a job for each of up to `batch` deliveries that have none, the oldest first; gives how many.

        Each delivery and its job in one commit. Any number may call it: none waits for another.
        """
        ...

    async def note(
        self, delivery_id: DeliveryId, carrier: JobId, tried: Try, state: DeliveryState, *, gone: bool = False
    ) -> bool:
        """Note a try by the job that carries the delivery, and how far it is now; False for another job.

        `gone` disables the webhook as well, in the same commit.
        """
        ...


@runtime_checkable
class HasWebhooks(Protocol):
    """A driver with webhooks beside its jobs."""

    @property
    def webhooks(self) -> WebhookStore:
        """Give the webhooks of the database that holds the jobs."""
        ...


def webhooks_of(driver: object) -> WebhookStore | None:
    """Give the webhooks beside a driver's jobs, None for a driver without."""
    return driver.webhooks if isinstance(driver, HasWebhooks) else None
