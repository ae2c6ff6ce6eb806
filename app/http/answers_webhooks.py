"""What callers are answered about webhooks; a part of `answers`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from ..domain.state import State
from ..domain.webhook import DeliveryState
from .answers import Answer


class Webhook(Answer):
    """A webhook. Its secret is kept nowhere, so nothing here has it."""

    id: str
    tenant: str
    label: str
    url: str
    is_disabled: bool = Field(description="Nothing is delivered; what would be has failed.")
    disabled_at: datetime | None
    disabled_reason: str | None
    secret_number: int = Field(description="How many secrets it has had, the present one included.")
    previous_until: datetime | None = Field(description="How long the secret before goes on signing as well.")
    created_at: datetime
    created_by: str
    rotated_at: datetime | None


class IssuedWebhook(Webhook):
    """A webhook with the secret its deliveries are signed with, which is answered this once."""

    secret: str


class WebhookList(Answer):
    """Webhooks, the newest first."""

    items: list[Webhook]


class DeliveryTry(Answer):
    """One try to deliver."""

    at: datetime
    status: int | None = Field(description="What the receiver answered; null where no answer came.")
    error: str | None
    duration_ms: int


class Delivery(Answer):
    """The end of a job, told to a webhook."""

    id: UUID
    webhook_id: str
    message_id: str = Field(description="The `webhook-id` that it is sent with, at every try.")
    url: str | None = Field(description="Another address than the webhook's own.")
    state: DeliveryState
    job_id: UUID
    job_name: str
    job_state: State = Field(description="How the job ended.")
    ended_at: datetime
    carrier_id: UUID | None = Field(description="The job that carries it; null until there is one.")
    attempts: int = Field(description="Tries so far.")
    tries: list[DeliveryTry] = Field(description="The newest fifty, the newest last.")


class DeliveryList(Answer):
    """A page of deliveries, the newest first."""

    items: list[Delivery]
    next_cursor: str | None
