"""Webhooks: see and change them, see what was told, tell it again.

What makes a secret is not here: such an answer is given once, and a request that is repeated would lose it.
"""

from __future__ import annotations

from uuid import UUID

from ..answers.webhooks import Delivery, Webhook
from ..call import Answer, Call, Page, get, get_items, get_pages, given, path, post


def list_webhooks() -> Call[tuple[Webhook, ...]]:
    """Give the webhooks of the key's tenant, the newest first."""
    return get_items("/v1/webhooks", Webhook)


def get_webhook(webhook: str) -> Call[Webhook]:
    """Give one webhook."""
    return get(path("v1", "webhooks", webhook), Webhook)


def update_webhook(
    webhook: str,
    *,
    label: str | None = None,
    url: str | None = None,
    is_disabled: bool | None = None,
    version: str | None = None,
    reason: str | None = None,
) -> Call[Webhook]:
    """Change label or address, disable or enable it; with a `version` only what was looked at."""
    fields = given(label=label, url=url, is_disabled=is_disabled, reason=reason)
    headers = {} if version is None else {"If-Match": version if version == "*" else f'"{version}"'}
    return Call(method="PATCH", path=path("v1", "webhooks", webhook), read=_webhook, body=fields, headers=headers)


def delete_webhook(webhook: str, *, reason: str | None = None) -> Call[None]:
    """Delete a webhook with what is known of its deliveries."""
    return Call(method="DELETE", path=path("v1", "webhooks", webhook), read=_nothing, query=given(reason=reason))


def list_deliveries(webhook: str, *, limit: int | None = None) -> Call[Page[Delivery]]:
    """Give all deliveries of a webhook, the newest first; `limit` is how many come in one page."""
    return get_pages(path("v1", "webhooks", webhook, "deliveries"), Delivery, limit=limit)


def resend_delivery(webhook: str, delivery: UUID | str, *, reason: str | None = None) -> Call[Delivery]:
    """Tell a webhook once more, under the same message id.

    Raises:
        ProblemError: `JOB_STATE_CONFLICT`: it is on its way.
    """
    where = path("v1", "webhooks", webhook, "deliveries", str(delivery), "resend")
    return post(where, Delivery, reason=reason)


def _webhook(answer: Answer) -> Webhook:
    return Webhook.model_validate_json(answer.body)


def _nothing(_answer: Answer) -> None:
    return None
