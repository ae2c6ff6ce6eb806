"""The memory driver's verbs of requests with a key of their own, over the same `Store`."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.event import Emitted, NewEvent
from ...domain.job import Enqueued, NewJob
from ...domain.request_claim import (
    REQUEST_KEPT,
    REQUEST_LEASE,
    Effect,
    KeptAnswer,
    NewRequest,
    RequestClaim,
    emitted_event,
    in_flight,
    key_reused,
    stored_jobs,
)
from ..requests import RequestStore
from .enqueue import add_all
from .events import emit_at
from .request_rows import Asked
from .store import Store


class MemoryRequests:
    """A store of requests whose rows live in this process. What each verb does is said by the protocol."""

    _store: Store

    async def claim_request(self, request: NewRequest) -> RequestClaim | KeptAnswer:
        """Give the right to do a request, or its answer."""
        with self._store.statement() as now:
            row = self._store.requests.get(request.id)
            if row is None or row.created_at <= now - REQUEST_KEPT:
                row = self._store.requests[request.id] = Asked(
                    holder=request.holder, fingerprint=request.fingerprint, created_at=now, until=now + REQUEST_LEASE
                )
                return RequestClaim(id=request.id, holder=request.holder)
            if row.fingerprint != request.fingerprint:
                raise key_reused()
            if row.answer is not None:
                return row.answer
            if row.effect is None and row.holder != request.holder and row.until > now:
                raise in_flight()
            row.holder, row.until = request.holder, now + REQUEST_LEASE
            return RequestClaim(id=request.id, holder=request.holder, effect=row.effect)

    async def answer_request(self, claim: RequestClaim, answer: KeptAnswer) -> None:
        """Keep the answer."""
        with self._store.statement():
            row = self._store.requests.get(claim.id)
            if row is not None and row.answer is None and (row.holder == claim.holder or row.effect is not None):
                row.answer = answer

    async def release_request(self, claim: RequestClaim) -> None:
        """Forget a request that was refused."""
        with self._store.statement():
            row = self._store.requests.get(claim.id)
            if row is not None and row.holder == claim.holder and row.effect is None and row.answer is None:
                del self._store.requests[claim.id]

    async def enqueue_once(self, jobs: Sequence[NewJob], claim: RequestClaim) -> tuple[Enqueued, ...]:
        """Store all jobs and mark the request."""
        with self._store.statement(claim=claim) as now:
            answers = add_all(self._store, now, jobs)
            mark(self._store, claim, stored_jobs(answers))
            return answers

    async def emit_once(self, event: NewEvent, claim: RequestClaim) -> Emitted:
        """Emit an event and mark the request."""
        with self._store.statement(claim=claim) as now:
            emitted = emit_at(self._store, now, event)
            mark(self._store, claim, emitted_event(emitted))
            return emitted


_: type[RequestStore] = MemoryRequests


def mark(store: Store, claim: RequestClaim | None, effect: Effect) -> None:
    """Mark what a request does, in a statement that began with its claim; without one nothing."""
    if claim is not None:
        row = store.requests[claim.id]
        row.effect = row.effect or effect
