"""What is said of webhooks: the wording of their events. No address and no secret is among the facts."""

from __future__ import annotations

from typing import Literal

from ..domain.webhook import Delivery, DeliveryState, Try, WebhookId


class WebhookEvents:
    """The events of webhooks; whoever inherits them says how they are said."""

    def delivery_tried(self, delivery: Delivery, tried: Try, state: DeliveryState) -> None:
        """A try to deliver is over, and noted."""
        facts: dict[str, object] = {
            "delivery_id": str(delivery.id),
            "webhook": delivery.webhook,
            "job_id": str(delivery.ended.job_id),
            "status": tried.status,
            "duration_ms": tried.duration_ms,
        }
        if state is DeliveryState.DELIVERED:
            self._say("info", "webhook.delivered", **facts)
            return
        event = "webhook.failed" if state is DeliveryState.FAILED else "webhook.refused"
        self._say("warning", event, **facts)

    def webhook_disabled(self, webhook: WebhookId, *, tenant: str) -> None:
        """A receiver has said that it is gone for good."""
        self._say("warning", "webhook.disabled", webhook=webhook, tenant=tenant)

    def _say(self, level: Literal["debug", "info", "warning", "error"], event: str, **facts: object) -> None:
        raise NotImplementedError
