"""The vocabulary of limits: limited jobs wait in a gate, are admitted with slots, and give them back.

A part of the job store's protocol, apart because jobs without limits never come here, but for those of fair queues, in
which tenants take turns. The gate is no state of its own:
a job in it is ready, and no claim sees it. A slot is a row of one claim. It is held until its body has ended or its
worker's lease has, whatever became of the claim: a cancelled job's body that runs on still holds it. What operators do
keeps its row of the audit, when it is given one, in the same commit. Implemented by every driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from ..domain.audit import AuditEntry
from ..domain.job import ClaimToken, JobId, WorkerId
from ..domain.limit import Admitted, JobLimits, SlotQuery, SlotView, StoredLimit
from .claims import ClaimRequest


class LimitStore(Protocol):
    """A store of limits and slots."""

    # --- for workers

    async def admit(self, request: ClaimRequest) -> Admitted:
        """Take jobs out of the gate, in a claim's order and under its rules, each with all its slots or not at all.

        Never over `n` of any key. Waits for nobody: of keys that somebody else decides about it says so. What it finds
        blocked it parks at the key it lacks, and does not look at again before that key has room.
        """
        ...

    async def free_slots(self, tokens: Sequence[ClaimToken]) -> int:
        """Give back the slots of claims whose bodies have ended, and wake who waits for them; gives their number.

        Fenced by the whole token, and by nothing else: also after the claim is closed, and after the lease. Repeating
        it is harmless.
        """
        ...

    async def return_slots(self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime) -> int:
        """Give back what the store says a worker holds and it does not: slots taken `before`, of no claim in `held`.

        For slots whose claim's reply, or whose giving back, was lost. `held` are all whose bodies have not ended.
        """
        ...

    async def sweep_slots(self, batch: int = 1000) -> int:
        """Give back the slots of workers that are gone: lost, closed or absent; gives their number.

        Also lets go of keys that nothing has been under for a day.
        """
        ...

    async def line_up(self, batch: int = 1000) -> int:
        """Let ready jobs of fair queues that are out of line wait for their turn; gives their number, about `batch`.

        Jobs that had begun, or were being enqueued, when the queue became fair. By any worker, at any time.
        """
        ...

    # --- operators and readers

    async def slots(self, query: SlotQuery) -> tuple[SlotView, ...]:
        """Give held slots, by their jobs' ids; those of one job by when they were taken."""
        ...

    async def release_slots(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> tuple[SlotView, ...]:
        """Take back what closed attempts of a job still hold, at once, on an operator's word; gives what it took.

        Its body may run on, and is then one more than the limit. `JOB_STATE_CONFLICT` while the attempt is open, which
        a cancel ends; `NOT_FOUND` when it holds nothing; `SLOT_LOST` when it was given back meanwhile; `JOB_NOT_FOUND`.
        """
        ...

    async def stored_limits(self, name: str | None = None) -> tuple[StoredLimit, ...]:
        """Give the limits of job types as they are in force, by type and name."""
        ...

    async def set_limit(
        self, name: str, limit: str, n: int | None, *, by: str, audit: AuditEntry | None = None
    ) -> StoredLimit:
        """Put an operator's `n` in the place of the declared one, or with None take it away again.

        Fewer than are held now takes nothing back; nobody starts until they have ended. `NOT_FOUND` for a limit that
        no job type has declared.
        """
        ...

    async def limits_of(self, job_id: JobId, *, tenant: str | None = None) -> JobLimits | None:
        """Give what a job's limits are and how they stand, in one snapshot; None when absent or another tenant's."""
        ...
