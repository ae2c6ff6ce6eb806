"""The memory driver's row of a request with a key of its own, and the fence of its claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ...domain.request_claim import Effect, KeptAnswer, RequestClaim, RequestId, in_flight


@dataclass(slots=True, kw_only=True)
class Asked:
    """A request somebody does, or has done."""

    holder: UUID
    fingerprint: UUID
    created_at: datetime
    until: datetime
    effect: Effect | None = None
    answer: KeptAnswer | None = None


def refuse_lost(rows: Mapping[RequestId, Asked], claim: RequestClaim | None) -> None:
    """Refuse to do a request that somebody else does by now; before anything is changed, as nothing is undone here.

    Raises:
        IdempotencyInFlight: the claim is not this one.
    """
    if claim is None:
        return
    row = rows.get(claim.id)
    if row is None or row.holder != claim.holder:
        raise in_flight()
