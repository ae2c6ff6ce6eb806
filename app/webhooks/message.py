"""What a receiver is sent: a CloudEvent in JSON, with the headers of Standard Webhooks.

The body of a delivery is the same at every try, and so is its `webhook-id`; timestamp and signature are made anew. No
payload, result or error is in it: who may read those asks for the job. Called by `carrier`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from standardwebhooks import Webhook as Signer

from .. import __version__
from ..domain.webhook import TYPE_OF, Delivery, DeliveryId

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"


def message_id(delivery_id: DeliveryId) -> str:
    """Give what stands for a delivery through all its tries."""
    return f"msg_{delivery_id.hex}"


def body_of(delivery: Delivery) -> str:
    """Give the event as structured JSON."""
    ended = delivery.ended
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": message_id(delivery.id),
        "source": f"/outlast/{quote(ended.tenant, safe='')}",
        "type": TYPE_OF[ended.state],
        "subject": str(ended.job_id),
        "time": _time(ended.ended_at),
        "datacontenttype": "application/json",
    }
    if ended.traceparent is not None:
        event["traceparent"] = ended.traceparent
    event["data"] = {
        "id": str(ended.job_id),
        "run_id": str(ended.run_id),
        "name": ended.name,
        "queue": ended.queue,
        "tenant": ended.tenant,
        "state": ended.state.value,
        "state_reason": ended.reason,
        "attempt": ended.attempt,
        "finished_at": _time(ended.ended_at),
    }
    return json.dumps(event, ensure_ascii=True, separators=(",", ":"))


def headers_of(delivery: Delivery, body: str, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """Give the headers of one try, signed with every secret in force, the newest first."""
    name = message_id(delivery.id)
    at = now.astimezone(UTC)
    headers = {
        "content-type": CONTENT_TYPE,
        "user-agent": f"outlast/{__version__}",
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Signer(secret).sign(name, at, body) for secret in secrets),
    }
    return headers if delivery.ended.traceparent is None else headers | {"traceparent": delivery.ended.traceparent}


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
