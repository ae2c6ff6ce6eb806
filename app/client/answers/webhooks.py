"""What is answered about webhooks: who is told when jobs end, what was told, and what came of it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from .shown import Shown


class Webhook(Shown):
    """Who is told. Its secret is never among this; the one before signs as well until `previous_until`."""

    id: str
    tenant: str
    label: str
    url: str
    is_disabled: bool
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    secret_number: int
    previous_until: datetime | None = None
    created_at: datetime
    created_by: str
    rotated_at: datetime | None = None


class DeliveryTry(Shown):
    """One try; `status` is None where no answer came."""

    at: datetime
    status: int | None = None
    error: str | None = None
    duration_ms: int


class Delivery(Shown):
    """The end of a job, told to a webhook. `carrier_id` is the job that carries it, `message_id` what it is sent with.

    `state` is `pending`, `delivered` or `failed`; `tries` are the newest, of so many `attempts`.
    """

    id: UUID
    webhook_id: str
    message_id: str
    url: str | None = None
    state: str
    job_id: UUID
    job_name: str
    job_state: str
    ended_at: datetime
    carrier_id: UUID | None = None
    attempts: int
    tries: tuple[DeliveryTry, ...]
