"""Rows of webhooks and deliveries as values, and the columns they are read by.

Used by `webhooks` and `webhook_carry`.
"""

from __future__ import annotations

import json
from datetime import datetime

from ...domain.job import JobId
from ...domain.state import State
from ...domain.webhook import Delivery, DeliveryId, DeliveryState, Ended, SecretRef, Try, Webhook, WebhookId
from .buckets import CANCELLED, CODE_OF, DEAD
from .database import Row
from .rows import plain

# Codes of `delivery.state`. A delivery whose carrier has ended without a word failed as well.
STATE_CODES = {DeliveryState.PENDING: 0, DeliveryState.DELIVERED: 1, DeliveryState.FAILED: 2}
PENDING, _, FAILED = STATE_CODES.values()

_STATES = {code: state for state, code in STATE_CODES.items()}
_ENDS = {code: state for state, code in CODE_OF.items()}

WEBHOOK = """w.id, w.tenant, w.label, w.url, w.secret_no, w.master, w.created_at, w.created_by, w.rotated_at,
  w.disabled_at, w.disabled_why, w.version,
  case when w.previous_until > outlast.clock() then w.previous_no end as previous_no,
  case when w.previous_until > outlast.clock() then w.previous_master end as previous_master,
  case when w.previous_until > outlast.clock() then w.previous_until end as previous_until"""
DELIVERY = f"""d.id, d.tenant, d.webhook, d.url, d.subject, d.run_id, d.name, d.queue, d.ended_as, d.reason, d.attempt,
  d.traceparent, d.ended_at, d.carrier, d.tried, d.tries,
  case when d.state = {PENDING} and f.state in ({DEAD}, {CANCELLED}) then {FAILED} else d.state end as state"""
# Beside a delivery `d`: how its carrier ended.
CARRIED = "left join lateral (select f.state from outlast.finished f where f.job_id = d.carrier offset 0) f on true"


def webhook_of(row: Row) -> Webhook:
    """Give a webhook."""
    previous = (
        None if row["previous_no"] is None else SecretRef(number=row["previous_no"], master=row["previous_master"])
    )
    return Webhook(
        id=WebhookId(row["id"]),
        tenant=row["tenant"],
        label=row["label"],
        url=row["url"],
        secret=SecretRef(number=row["secret_no"], master=row["master"]),
        previous=previous,
        previous_until=row["previous_until"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        rotated_at=row["rotated_at"],
        disabled_at=row["disabled_at"],
        disabled_why=row["disabled_why"],
        version=row["version"],
    )


def delivery_of(row: Row) -> Delivery:
    """Give a delivery with its newest tries."""
    ended = Ended(
        job_id=JobId(plain(row["subject"])),
        run_id=plain(row["run_id"]),
        name=row["name"],
        queue=row["queue"],
        tenant=row["tenant"],
        state=State(_ENDS[row["ended_as"]]),
        reason=row["reason"],
        attempt=row["attempt"],
        ended_at=row["ended_at"],
        traceparent=row["traceparent"],
    )
    return Delivery(
        id=DeliveryId(plain(row["id"])),
        webhook=WebhookId(row["webhook"]),
        url=row["url"],
        ended=ended,
        state=_STATES[row["state"]],
        carrier=None if row["carrier"] is None else JobId(plain(row["carrier"])),
        tried=row["tried"],
        tries=tuple(_try(one) for one in json.loads(row["tries"])),
    )


def try_text(tried: Try) -> str:
    """Give a try as a list of one, in JSON."""
    kept = {"at": tried.at.isoformat(), "status": tried.status, "error": tried.error, "ms": tried.duration_ms}
    return json.dumps([kept])


def _try(kept: dict[str, str | int | None]) -> Try:
    status, error = kept["status"], kept["error"]
    return Try(
        at=datetime.fromisoformat(str(kept["at"])),
        status=status if isinstance(status, int) else None,
        error=None if error is None else str(error),
        duration_ms=int(kept["ms"] or 0),
    )
