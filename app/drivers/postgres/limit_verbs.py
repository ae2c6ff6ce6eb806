"""The verbs of limits, a part of the driver: each is a function in a module of its own.

Apart because jobs without limits never come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.job import ClaimToken, JobId, WorkerId
from ...domain.limit import Admitted, JobLimits, SlotQuery, SlotView, StoredLimit
from ..limits import LimitStore
from ..protocol import ClaimRequest
from . import gate, limit_rules, limit_versions, slots, slots_view, turns
from .look import look
from .run_verbs import RunVerbs


class LimitVerbs(RunVerbs):
    """A store of limits and slots in PostgreSQL. What each verb promises, the protocol says."""

    # --- for workers

    async def admit(self, request: ClaimRequest) -> Admitted:
        """Take jobs out of the gate."""
        return await gate.admit(self._db, request)

    async def free_slots(self, tokens: Sequence[ClaimToken]) -> int:
        """Give back the slots of claims whose bodies have ended."""
        return await slots.free_slots(self._db, tokens)

    async def return_slots(self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime) -> int:
        """Give back what a worker does not know of."""
        return await slots.return_slots(self._db, worker_id, held, before=before)

    async def sweep_slots(self, batch: int = 1000) -> int:
        """Give back the slots of workers that are gone, and choose whose numbers hold."""
        freed = await slots.sweep_slots(self._db, batch)
        await limit_versions.choose_anew(self._db)
        return freed

    async def line_up(self, batch: int = 1000) -> int:
        """Let jobs of fair queues that are out of line wait for their turn."""
        return await turns.line_up(self._db, batch)

    # --- operators and readers

    async def slots(self, query: SlotQuery) -> tuple[SlotView, ...]:
        """Give held slots."""
        return await look(self._db, lambda db: slots_view.slots(db, query))

    async def release_slots(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> tuple[SlotView, ...]:
        """Take back what closed attempts of a job hold."""
        return await slots.release_slots(self._db, job_id, tenant=tenant, audit=audit)

    async def stored_limits(self, name: str | None = None) -> tuple[StoredLimit, ...]:
        """Give the limits in force."""
        return await limit_rules.stored_limits(self._db, name)

    async def set_limit(
        self, name: str, limit: str, n: int | None, *, by: str, audit: AuditEntry | None = None
    ) -> StoredLimit:
        """Put an operator's number in the declared one's place."""
        return await limit_rules.set_limit(self._db, name, limit, n, by=by, audit=audit)

    async def limits_of(self, job_id: JobId, *, tenant: str | None = None) -> JobLimits | None:
        """Give what a job's limits are and how they stand."""
        return await slots_view.limits_of(self._db, job_id, tenant=tenant)


_: type[LimitStore] = LimitVerbs
