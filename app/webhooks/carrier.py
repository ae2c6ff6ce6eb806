"""The job type that carries deliveries.

A try is a POST and a note of it; what happens to the worker in between happens to the job, which is run again under
the same message id. It is in a worker's registry where the worker has the master key. Made by the composition root.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any
from uuid import UUID

from ..domain.errors import CallbackRefused
from ..domain.job import JobId
from ..domain.text import storable
from ..domain.webhook import CARRIER, Delivery, DeliveryId, DeliveryState, Try, Webhook
from ..domain.webhook_secret import Masters
from ..drivers.webhooks import WebhookStore
from ..jobs.callbacks import CARRIED
from ..jobs.context import JobContext
from ..jobs.exits import RetryAfter, Terminal
from ..jobs.handle import JobHandle, job
from ..observability.telemetry import Telemetry
from .message import body_of, headers_of
from .sender import Sender, Sent

# One attempt of the job: the try itself is bounded by the sender.
_TIMEOUT = timedelta(minutes=5)
_GONE = 410
_MOST_SAID_BYTES = 512


class DeliveryFailed(Exception):
    """The receiver did not take a delivery; there will be another try while the budget lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """Carries deliveries of a store: signs with `masters`, sends with `sender`, and notes what came of it."""

    store: WebhookStore
    masters: Masters
    sender: Sender
    telemetry: Telemetry
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = perf_counter

    def handle(self, queue: str) -> JobHandle[Any, None]:
        """Give the job type, to be run from a queue."""

        @job(CARRIER, queue=queue, retry=CARRIED, timeout=_TIMEOUT)
        async def deliver(ctx: JobContext, delivery: UUID) -> None:
            """Tell a webhook of the end of a job."""
            await self.carry(DeliveryId(delivery), ctx.id, is_last=ctx.attempt >= ctx.max_attempts)

        return deliver

    async def carry(self, delivery_id: DeliveryId, carrier: JobId, *, is_last: bool) -> None:
        """Try once; a delivery that was deleted, or that another job carries by now, is no business any more.

        Raises:
            Terminal: no other try can help.
            RetryAfter: the receiver asked for a pause.
            DeliveryFailed: it was not taken.
        """
        delivery = await self.store.delivery(delivery_id)
        if delivery is None or delivery.carrier != carrier:
            return
        webhook = await self.store.webhook(delivery.webhook, tenant=delivery.ended.tenant)
        began, at = self.monotonic(), self.now()
        try:
            sent = await self._send(delivery, webhook, at)
        except CallbackRefused as refused:
            await self._note(delivery, carrier, Sent(status=None, error=refused.cause), began, at, is_over=True)
            raise Terminal(str(refused)) from refused
        is_gone = sent.status == _GONE
        await self._note(delivery, carrier, sent, began, at, is_over=is_last or is_gone)
        if sent.is_taken:
            return
        said = f"{delivery.webhook}: {sent.error}"
        if is_gone:
            raise Terminal(f"{said}; the webhook is disabled")
        if sent.retry_after is not None:
            raise RetryAfter(sent.retry_after, said)
        raise DeliveryFailed(said)

    async def _send(self, delivery: Delivery, webhook: Webhook | None, at: datetime) -> Sent:
        if webhook is None:
            raise CallbackRefused(f"webhook {delivery.webhook} is deleted", fix="make another one and name that")
        if webhook.is_disabled:
            raise CallbackRefused(
                f"webhook {webhook.id} is disabled: {webhook.disabled_why}", fix="enable it, then send again"
            )
        secrets = [self.masters.secret(webhook.id, ref) for ref in webhook.signing]
        body = body_of(delivery)
        return await self.sender.post(webhook.target(delivery.url), body, headers_of(delivery, body, secrets, at))

    async def _note(
        self, delivery: Delivery, carrier: JobId, sent: Sent, began: float, at: datetime, *, is_over: bool
    ) -> None:
        said = None if sent.error is None else storable(sent.error, _MOST_SAID_BYTES)[0]
        tried = Try(at=at, status=sent.status, error=said, duration_ms=max(0, round((self.monotonic() - began) * 1000)))
        is_gone = sent.status == _GONE
        state = DeliveryState.PENDING
        if sent.is_taken or is_over:
            state = DeliveryState.DELIVERED if sent.is_taken else DeliveryState.FAILED
        await self.store.note(delivery.id, carrier, tried, state, gone=is_gone)
        self.telemetry.delivery_tried(delivery, tried, state)
        if is_gone:
            self.telemetry.webhook_disabled(delivery.webhook, tenant=delivery.ended.tenant)
