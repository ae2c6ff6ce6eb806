"""Operations on webhooks: who changes one and hears nothing repeats it, and an end is told under one id."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

from app.domain.audit import Action, AuditEntry, Target
from app.domain.errors import JobStateConflict, NotFound
from app.domain.webhook import (
    CARRIER,
    Callback,
    Delivery,
    DeliveryState,
    NewWebhook,
    SecretRef,
    Try,
    WebhookChange,
    new_webhook_id,
)
from app.drivers.postgres.webhooks import PostgresWebhooks
from app.jobs.callbacks import carrying
from tests.faults.cuts.cell import Operation


class Create(Operation):
    name = "create a webhook"
    action = Action.WEBHOOK_CREATE

    async def arrange(self) -> None:
        await self.fetch("truncate outlast.webhook, outlast.delivery, outlast.audit")
        self.webhook = NewWebhook(
            id=new_webhook_id(), tenant="acme", label="shop", url="https://a.example/", master="m1", created_by="ada"
        )
        self.audit = AuditEntry(
            id=uuid4(),
            actor="ada",
            action=self.action,
            target_kind=Target.WEBHOOK,
            target=self.webhook.id,
            tenant="acme",
        )

    async def call(self) -> Any:
        return await self.store().create(self.webhook, audit=self.audit)

    async def check(self, answer: Any) -> None:
        (found,) = await self.store(straight=True).webhooks()
        assert (found.id, found.secret) == (self.webhook.id, SecretRef(number=1, master="m1"))
        assert await self.count("audit") == 1

    def store(self, *, straight: bool = False) -> PostgresWebhooks:
        """Give the webhooks past the blade, or around it."""
        found: Any = self.straight if straight else self.driver
        webhooks: PostgresWebhooks = found.webhooks
        return webhooks


class _Made(Create):
    """There is a webhook already."""

    async def arrange(self) -> None:
        await super().arrange()
        await self.store(straight=True).create(self.webhook)


class Change(_Made):
    name = "disable a webhook"
    action = Action.WEBHOOK_UPDATE

    async def call(self) -> Any:
        return await self.store().change(self.webhook.id, WebhookChange(is_disabled=True), audit=self.audit)

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        (found,) = await self.store(straight=True).webhooks()
        assert (found.is_disabled, found.version) == (True, 2)


class Rotate(_Made):
    """Repeated, it does not take the new secret for the one before."""

    name = "rotate a webhook"
    action = Action.WEBHOOK_ROTATE

    async def call(self) -> Any:
        secret = SecretRef(number=2, master="m2")
        return await self.store().rotate(self.webhook.id, secret, overlap=timedelta(hours=1), audit=self.audit)

    async def check(self, answer: Any) -> None:
        (found,) = await self.store(straight=True).webhooks()
        assert found.signing == (SecretRef(number=2, master="m2"), SecretRef(number=1, master="m1"))
        assert await self.count("audit") == 1


class Delete(_Made):
    """Repeated, it finds nothing."""

    name = "delete a webhook"
    action = Action.WEBHOOK_DELETE

    async def call(self) -> Any:
        with suppress(NotFound):
            await self.store().delete(self.webhook.id, audit=self.audit)

    async def check(self, answer: Any) -> None:
        assert await self.store(straight=True).webhooks() == ()
        assert await self.count("audit") == 1


class _Told(_Made):
    """A job has ended whose end is to be told."""

    async def arrange(self) -> None:
        await super().arrange()
        job_id = await self.enqueued(tenant="acme", callback=Callback(webhook=self.webhook.id).text())
        await self.straight.cancel(job_id, reason="stop")

    async def told(self) -> Delivery:
        """Give the delivery; whoever carries it is a job of the service's own."""
        (found,) = (await self.store(straight=True).deliveries(self.webhook.id)).items
        self.acked |= {found.carrier} - {None}  # type: ignore[arg-type] # without None
        return found


class Carry(_Told):
    name = "hand on a delivery"

    async def arrange(self) -> None:
        await super().arrange()
        await self.name_known(CARRIER)

    async def call(self) -> Any:
        await self.store().carry(carrying("default"))

    async def check(self, answer: Any) -> None:
        told = await self.told()
        assert told.carrier is not None
        assert await self.straight.describe(told.carrier) is not None
        assert await self.count("job", "payload like $1", f"%{told.id}%") == 1


class _Carried(_Told):
    """A job carries the delivery."""

    async def arrange(self) -> None:
        await super().arrange()
        await self.store(straight=True).carry(carrying("default"))
        self.delivery = await self.told()

    async def note(self, store: PostgresWebhooks, state: DeliveryState) -> None:
        """Note a try by that job."""
        assert self.delivery.carrier is not None
        tried = Try(at=self.delivery.ended.ended_at, status=200, error=None, duration_ms=1)
        assert await store.note(self.delivery.id, self.delivery.carrier, tried, state)


class Note(_Carried):
    """A worker does not repeat it: the job is run again, and sends again."""

    name = "note a try"

    async def call(self) -> Any:
        await self.note(self.store(), DeliveryState.DELIVERED)

    async def check(self, answer: Any) -> None:
        told = await self.told()
        assert (told.state, told.tried) in {(DeliveryState.DELIVERED, 1), (DeliveryState.DELIVERED, 2)}
        assert len(told.tries) == told.tried


class Resend(_Carried):
    """Repeated, it finds it on its way."""

    name = "send a delivery again"
    action = Action.WEBHOOK_RESEND

    async def arrange(self) -> None:
        await super().arrange()
        await self.note(self.store(straight=True), DeliveryState.FAILED)

    async def call(self) -> Any:
        with suppress(JobStateConflict):
            await self.store().resend(self.webhook.id, self.delivery.id, audit=self.audit)

    async def check(self, answer: Any) -> None:
        told = await self.told()
        assert (told.state, told.carrier) == (DeliveryState.PENDING, None)
        assert await self.count("audit") == 1


OPERATIONS: tuple[type[Operation], ...] = (Create, Change, Rotate, Delete, Carry, Note, Resend)
