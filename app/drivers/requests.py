"""The part of the store protocol that is about requests with a key of their own: the `Idempotency-Key` of HTTP.

A request is claimed, done, and answered. What it does is marked in its own commit, fenced by the claim: verbs with a
row of the audit mark it with that row (`AuditEntry.request`), the two here by themselves. Whoever claims a request
whose effect is marked only gives the answer again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..domain.event import Emitted, NewEvent
from ..domain.job import Enqueued, NewJob
from ..domain.request_claim import KeptAnswer, NewRequest, RequestClaim


class RequestStore(Protocol):
    """A store that knows which requests were done."""

    async def claim_request(self, request: NewRequest) -> RequestClaim | KeptAnswer:
        """Give the right to do a request, or its answer. Repeating it with the same holder is safe.

        A claim ends with its lease, and at once when its effect is marked. `IDEMPOTENCY_KEY_REUSED` for another
        fingerprint within the day, `IDEMPOTENCY_IN_FLIGHT` while somebody else holds the claim.
        """
        ...

    async def answer_request(self, claim: RequestClaim, answer: KeptAnswer) -> None:
        """Keep the answer; the first one stands. A claim that somebody else holds by now keeps nothing."""
        ...

    async def release_request(self, claim: RequestClaim) -> None:
        """Forget a request that was refused: nothing was done, and the key is free for another try.

        One whose effect is marked stays.
        """
        ...

    async def enqueue_once(self, jobs: Sequence[NewJob], claim: RequestClaim) -> tuple[Enqueued, ...]:
        """Store all jobs or none, and mark it, in one commit; answers in order. Repeating the same ids is safe.

        Raises as `enqueue_many`; `IDEMPOTENCY_IN_FLIGHT` when the claim is somebody else's by now.
        """
        ...

    async def emit_once(self, event: NewEvent, claim: RequestClaim) -> Emitted:
        """Emit an event and mark it, in one commit. Repeating the same id is safe. `IDEMPOTENCY_IN_FLIGHT` as above."""
        ...
