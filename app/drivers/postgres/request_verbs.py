"""The verbs of requests with a key of their own, a part of the driver: each is a function in the module of its name."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.event import Emitted, NewEvent
from ...domain.job import Enqueued, NewJob
from ...domain.request_claim import KeptAnswer, NewRequest, RequestClaim
from ..requests import RequestStore
from . import events, place, requests
from .database import Database


class RequestVerbs:
    """A store of requests in PostgreSQL. What each verb promises, the protocol says."""

    _db: Database

    async def claim_request(self, request: NewRequest) -> RequestClaim | KeptAnswer:
        """Give the right to do a request, or its answer."""
        return await requests.claim_request(self._db, request)

    async def answer_request(self, claim: RequestClaim, answer: KeptAnswer) -> None:
        """Keep the answer."""
        await requests.answer_request(self._db, claim, answer)

    async def release_request(self, claim: RequestClaim) -> None:
        """Forget a request that was refused."""
        await requests.release_request(self._db, claim)

    async def enqueue_once(self, jobs: Sequence[NewJob], claim: RequestClaim) -> tuple[Enqueued, ...]:
        """Store all jobs and mark the request."""
        return await place.enqueue_once(self._db, jobs, claim)

    async def emit_once(self, event: NewEvent, claim: RequestClaim) -> Emitted:
        """Emit an event and mark the request."""
        return await events.emit(self._db, event, claim)


_: type[RequestStore] = RequestVerbs
