"""Limits as operators see them: who holds slots, how many there may be, and taking back what is held for nothing.

Called by the HTTP routes and the command line.
"""

from __future__ import annotations

from ..domain.audit import Acting, Action, Target
from ..domain.errors import RequestInvalid
from ..domain.job import JobId
from ..domain.limit import MOST_SLOTS, SlotQuery, SlotView, StoredLimit
from ..drivers.protocol import JobDriver
from .acting import done_before, entry_of, on_job
from .render import Document


class LimitControl:
    """Reads slots and limits, sets limits, and takes slots back."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def slots(self, query: SlotQuery) -> tuple[SlotView, ...]:
        """Give held slots, by their jobs' ids."""
        return await self._driver.slots(query)

    async def release(self, job_id: JobId, *, by: Acting, tenant: str | None = None) -> tuple[SlotView, ...]:
        """Take back what closed attempts of a job hold; gives what it took, nothing when an earlier try has taken it.

        Raises:
            OutlastError: `JOB_NOT_FOUND`; `JOB_STATE_CONFLICT` while its attempt is open; `NOT_FOUND` for no slot;
                `SLOT_LOST` when somebody else was first.
        """
        if done_before(by) is not None:
            return ()
        audit = on_job(by, Action.JOB_RELEASE_SLOTS, job_id)
        return await self._driver.release_slots(job_id, tenant=tenant, audit=audit)

    async def limits(self, name: str | None = None) -> tuple[StoredLimit, ...]:
        """Give the limits in force, by job type and name."""
        return await self._driver.stored_limits(name)

    async def set(self, name: str, limit: str, n: int | None, *, by: Acting) -> StoredLimit:
        """Put a number in the declared one's place, or with None take it away again.

        Raises:
            NotFound: no job type has declared such a limit.
            RequestInvalid: the number is out of bounds.
        """
        if n is not None and not 1 <= n <= MOST_SLOTS:
            raise RequestInvalid(
                f"a limit of {n} cannot be set",
                fix=f"send a number from 1 to {MOST_SLOTS}, or null for the declared one; pause its queue to stop it",
            )
        audit = entry_of(by, Action.LIMIT_SET, Target.LIMIT, f"{name}/{limit}")
        return await self._driver.set_limit(name, limit, n, by=by.actor, audit=audit)


def slot_document(slot: SlotView) -> Document:
    """Give the representation of a held slot."""
    return {
        "name": slot.name,
        "limit": slot.limit,
        "key": slot.key,
        "job_id": str(slot.job_id),
        "claim_no": slot.claim_no,
        "worker_id": str(slot.worker_id),
        "taken_at": slot.taken_at,
        "is_open": slot.is_open,
        "tenant": slot.tenant,
    }


def limit_document(limit: StoredLimit) -> Document:
    """Give the representation of a limit in force."""
    return {
        "name": limit.name,
        "limit": limit.limit,
        "n": limit.n,
        "declared": limit.declared,
        "per_ms": None if limit.per is None else round(limit.per.total_seconds() * 1000),
        "set_by": limit.set_by,
        "held": limit.held,
        "waiting": limit.waiting,
    }
