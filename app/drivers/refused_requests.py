"""The part of a store that is not built which is about requests with a key of their own; see `refused`."""

# ruff: noqa: ARG002, D102 - the signatures are the protocol's, and no argument matters

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..domain.errors import NotImplementedYet
from ..domain.event import Emitted, NewEvent
from ..domain.job import Enqueued, NewJob
from ..domain.request_claim import KeptAnswer, NewRequest, RequestClaim


class RefusedRequests(ABC):
    """A `RequestStore` that refuses everything."""

    async def claim_request(self, request: NewRequest) -> RequestClaim | KeptAnswer:
        raise self._refusal()

    async def answer_request(self, claim: RequestClaim, answer: KeptAnswer) -> None:
        raise self._refusal()

    async def release_request(self, claim: RequestClaim) -> None:
        raise self._refusal()

    async def enqueue_once(self, jobs: Sequence[NewJob], claim: RequestClaim) -> tuple[Enqueued, ...]:
        raise self._refusal()

    async def emit_once(self, event: NewEvent, claim: RequestClaim) -> Emitted:
        raise self._refusal()

    @abstractmethod
    def _refusal(self) -> NotImplementedYet:
        """Give the error every method raises."""
