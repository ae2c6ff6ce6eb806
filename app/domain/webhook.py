"""Webhooks: where a tenant's job ends are told, what a job asks to be told, and one telling with its tries.

A job names a webhook in its `callback`. When it ends, the store writes a delivery in the same commit; an internal job
carries it there. Secrets are not kept anywhere: they are derived, see `webhook_secret`. Called by `control`, `jobs`,
`webhooks` and the drivers.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType
from uuid import UUID

from .errors import CallbackRefused, JobStateConflict, NotFound, PreconditionFailed, RequestInvalid
from .issued import check_label
from .job import JobId
from .state import TERMINAL, State
from .webhook_address import origin_of, refuse_url

WebhookId = NewType("WebhookId", str)
DeliveryId = NewType("DeliveryId", UUID)

WEBHOOK_PATTERN = r"^wh_[0-9a-f]{16}$"
# The job type that carries deliveries.
CARRIER = "outlast.webhooks.deliver"
# Of one tenant.
MOST_WEBHOOKS = 1_000
# Of one delivery, the newest.
TRIES_KEPT = 50
# How long a delivery can be seen and sent again, from the end it tells of.
DELIVERY_KEPT = timedelta(days=30)

GONE = "the receiver answered 410 Gone"
ENDS: tuple[State, ...] = (State.DONE, State.DEAD, State.CANCELLED)
# The words of CloudEvents for the ends of jobs.
TYPE_OF = {
    State.DONE: "jobs.run.completed.v1",
    State.DEAD: "jobs.run.dead.v1",
    State.CANCELLED: "jobs.run.cancelled.v1",
}


class DeliveryState(StrEnum):
    """How far a delivery is."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """What a job asks for: to be told of to a webhook once it ends in one of `ends`, at `url` or the webhook's own.

    Raises:
        RequestInvalid: it names no end.
    """

    webhook: WebhookId
    url: str | None = None
    ends: frozenset[State] = frozenset(TERMINAL)

    def __post_init__(self) -> None:
        if not self.ends or not self.ends <= TERMINAL:
            raise RequestInvalid(
                "a callback is for ends: done, dead, cancelled",
                fix="name one of them, or none for all",
                pointer="/callback",
            )

    def text(self) -> str:
        """Give it as a store keeps it: JSON, the ends as a sum of bits."""
        bits = sum(BIT_OF[state] for state in self.ends)
        kept: dict[str, object] = {"to": self.webhook, "on": bits}
        return json.dumps(kept if self.url is None else kept | {"url": self.url}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> Callback:
        """Read what `text` gave."""
        kept = json.loads(text)
        ends = frozenset(state for state in ENDS if kept["on"] & BIT_OF[state])
        return cls(webhook=WebhookId(kept["to"]), url=kept.get("url"), ends=ends)


# By the codes of ended jobs in the store: bit 0 done, 2 dead, 4 cancelled.
BIT_OF = {State.DONE: 1, State.DEAD: 4, State.CANCELLED: 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook to be stored. `master` names the master key that its first secret is derived from."""

    id: WebhookId
    tenant: str
    label: str
    url: str
    master: str
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """Which secret of a webhook: its number, and the name of the master key it is derived from."""

    number: int
    master: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook as people see it. `previous` is set while the secret before signs as well.

    `version` grows with every change of `label`, `url` or whether it is disabled.
    """

    id: WebhookId
    tenant: str
    label: str
    url: str
    secret: SecretRef
    previous: SecretRef | None
    previous_until: datetime | None
    created_at: datetime
    created_by: str
    rotated_at: datetime | None
    disabled_at: datetime | None
    disabled_why: str | None
    version: int

    @property
    def is_disabled(self) -> bool:
        """Say whether nothing is delivered."""
        return self.disabled_at is not None

    @property
    def signing(self) -> tuple[SecretRef, ...]:
        """Give the secrets that sign now, the newest first."""
        return (self.secret,) if self.previous is None else (self.secret, self.previous)

    def target(self, url: str | None) -> str:
        """Give the address to call for a callback.

        Raises:
            CallbackRefused: it is on another origin than the webhook's own.
        """
        if url is None:
            return self.url
        own = origin_of(self.url)
        if origin_of(url) != own:
            raise CallbackRefused(
                f"the callback's address is not on the origin of webhook {self.id}",
                fix=f"use an address with the scheme, host and port of {own}, or leave `url` out",
                pointer="/callback/url",
            )
        return url


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChange:
    """What to change of a webhook; None leaves a thing as it is. `is_disabled=False` enables it again."""

    label: str | None = None
    url: str | None = None
    is_disabled: bool | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One try to deliver. `status` is None where no answer came, `error` says why then, or what was wrong with it."""

    at: datetime
    status: int | None
    error: str | None
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a delivery tells: the end of a job, as it was then."""

    job_id: JobId
    run_id: UUID
    name: str
    queue: str
    tenant: str
    state: State
    reason: str | None
    attempt: int
    ended_at: datetime
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One telling. `carrier` is the job that carries it, None until one was made; `tries` are the newest, in order."""

    id: DeliveryId
    webhook: WebhookId
    url: str | None
    ended: Ended
    state: DeliveryState
    carrier: JobId | None
    tried: int
    tries: tuple[Try, ...]

    @property
    def last(self) -> Try | None:
        """Give the newest try."""
        return self.tries[-1] if self.tries else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    """One page of a webhook's deliveries, newest first. `next_before` goes on from here, None at the end."""

    items: tuple[Delivery, ...]
    next_before: tuple[datetime, DeliveryId] | None


def new_webhook_id() -> WebhookId:
    """Mint a webhook's id."""
    return WebhookId(f"wh_{secrets.token_hex(8)}")


def ends_of(words: Iterable[str]) -> frozenset[State]:
    """Read the ends a callback is for.

    Raises:
        RequestInvalid: a word is none.
    """
    found = list(words)
    unknown = sorted(set(found) - {state.value for state in ENDS})
    if unknown:
        raise RequestInvalid(
            f"{unknown[0]!r} is no end of a job", fix="use done, dead and cancelled", pointer="/callback/events"
        )
    return frozenset(State(word) for word in found) or TERMINAL


def check_webhook(label: str | None, url: str | None) -> None:
    """Refuse a label that cannot be shown, or an address that can never be called.

    Raises:
        RequestInvalid: the label is blank, too long or not printable.
        CallbackRefused: the address.
    """
    if label is not None:
        check_label(label, fix="name who receives it")
    if url is not None:
        refuse_url(url)


def unknown_webhook(webhook_id: str) -> NotFound:
    """Give the refusal of an id that no webhook has, or another tenant's."""
    return NotFound(f"there is no webhook {webhook_id[:64]!r}", fix="list them with `outlast webhooks list`")


def stale(webhook_id: WebhookId) -> PreconditionFailed:
    """Give the refusal of a change to a webhook that is not what was looked at."""
    return PreconditionFailed(
        f"webhook {webhook_id} was changed since", fix="read it again, and send the `ETag` of that answer in `If-Match`"
    )


def unknown_delivery(delivery_id: object) -> NotFound:
    """Give the refusal of an id that no delivery of the webhook has."""
    return NotFound(f"there is no delivery {delivery_id}", fix="list them with `outlast webhooks deliveries`")


def still_pending(delivery_id: DeliveryId) -> JobStateConflict:
    """Give the refusal to send again what is on its way."""
    return JobStateConflict(
        f"delivery {delivery_id} is on its way", fix="wait until it is delivered or failed; its carrier can be run now"
    )


def too_many_webhooks() -> RequestInvalid:
    """Give the refusal of a webhook beyond the most a tenant may have."""
    return RequestInvalid(
        f"the tenant has {MOST_WEBHOOKS} webhooks already", fix="delete those that nobody uses: `outlast webhooks list`"
    )
