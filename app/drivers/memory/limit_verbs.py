"""The memory driver's verbs of limits, over the same `Store`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.job import ClaimToken, JobId, WorkerId
from ...domain.limit import Admitted, JobLimits, SlotQuery, SlotView, StoredLimit
from ..limits import LimitStore
from ..protocol import ClaimRequest
from . import limits
from .runs import MemoryRuns
from .turns import line_up


class MemoryLimits(MemoryRuns):
    """A `LimitStore` whose rows live in this process. What each verb does is said by the protocol."""

    # --- for workers

    async def admit(self, request: ClaimRequest) -> Admitted:
        """Take jobs out of the gate."""
        return limits.admit(self._store, request)

    async def free_slots(self, tokens: Sequence[ClaimToken]) -> int:
        """Give back the slots of claims whose bodies have ended."""
        return limits.free_slots(self._store, tokens)

    async def return_slots(self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime) -> int:
        """Give back what a worker does not know of."""
        return limits.return_slots(self._store, worker_id, held, before=before)

    async def sweep_slots(self, batch: int = 1000) -> int:
        """Give back the slots of workers that are gone."""
        return limits.sweep_slots(self._store, batch)

    async def line_up(self, batch: int = 1000) -> int:
        """Line up what came back to fair queues from attempts that had begun before they were fair."""
        with self._store.statement():
            return line_up(self._store, batch)

    # --- operators and readers

    async def slots(self, query: SlotQuery) -> tuple[SlotView, ...]:
        """Give held slots."""
        return limits.slots(self._store, query)

    async def release_slots(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> tuple[SlotView, ...]:
        """Take back what closed attempts of a job hold."""
        return limits.release_slots(self._store, job_id, tenant=tenant, audit=audit)

    async def stored_limits(self, name: str | None = None) -> tuple[StoredLimit, ...]:
        """Give the limits in force."""
        return limits.stored_limits(self._store, name)

    async def set_limit(
        self, name: str, limit: str, n: int | None, *, by: str, audit: AuditEntry | None = None
    ) -> StoredLimit:
        """Put an operator's number in the declared one's place."""
        return limits.set_limit(self._store, name, limit, n, by=by, audit=audit)

    async def limits_of(self, job_id: JobId, *, tenant: str | None = None) -> JobLimits | None:
        """Give what a job's limits are and how they stand."""
        return limits.limits_of(self._store, job_id, tenant=tenant)


_: type[LimitStore] = MemoryLimits
