"""The verbs of limits of a store that is not built: each refuses. A part of `refused`."""

# ruff: noqa: ARG002, D102 - the signatures are the protocol's, and no argument matters

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from ..domain.audit import AuditEntry
from ..domain.errors import NotImplementedYet
from ..domain.job import ClaimToken, JobId, WorkerId
from ..domain.limit import Admitted, JobLimits, SlotQuery, SlotView, StoredLimit
from .claims import ClaimRequest


class RefusedLimits(ABC):
    """A `LimitStore` that refuses everything."""

    @abstractmethod
    def _refusal(self) -> NotImplementedYet: ...

    async def admit(self, request: ClaimRequest) -> Admitted:
        raise self._refusal()

    async def free_slots(self, tokens: Sequence[ClaimToken]) -> int:
        raise self._refusal()

    async def return_slots(self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime) -> int:
        raise self._refusal()

    async def sweep_slots(self, batch: int = 1000) -> int:
        raise self._refusal()

    async def line_up(self, batch: int = 1000) -> int:
        raise self._refusal()

    async def slots(self, query: SlotQuery) -> tuple[SlotView, ...]:
        raise self._refusal()

    async def release_slots(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> tuple[SlotView, ...]:
        raise self._refusal()

    async def stored_limits(self, name: str | None = None) -> tuple[StoredLimit, ...]:
        raise self._refusal()

    async def set_limit(
        self, name: str, limit: str, n: int | None, *, by: str, audit: AuditEntry | None = None
    ) -> StoredLimit:
        raise self._refusal()

    async def limits_of(self, job_id: JobId, *, tenant: str | None = None) -> JobLimits | None:
        raise self._refusal()
