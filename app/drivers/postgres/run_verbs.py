"""The verbs of runs and events, a part of the driver: each is a function in the module of its name.

Apart because a driver without them would still run jobs without steps. Holds nothing but the lane of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from sqlalchemy.ext.asyncio import AsyncSession

from ...domain.audit import AuditEntry
from ...domain.event import Emitted, EventQuery, EventView, NewEvent
from ...domain.job import ClaimToken, Enqueued, JobId, RunId
from ...domain.sealed import Recode
from ...domain.step import NewNotes, NewStep, RunHistory, RunView
from ..runs import RunStore, Swept
from . import events, fork, run_view, steps, versions, waits
from .database import Database
from .look import look
from .notes import note
from .step_lane import StepLane
from .step_transaction import step_transaction
from .tenant_wall import admit


class RunVerbs:
    """A store of runs and events in PostgreSQL. What each verb promises, the protocol says."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._steps = StepLane(lambda recordings: steps.record_steps(self._db, recordings))

    # --- for the worker that holds the claim

    async def history(self, job_id: JobId, run_id: RunId) -> RunHistory:
        """Give what is recorded of a run."""
        return await run_view.history(self._db, job_id, run_id)

    async def record_step(self, token: ClaimToken, step: NewStep) -> bool:
        """Record a step."""
        return await self._steps.record(steps.Recording(token, step))

    def step_transaction(
        self, token: ClaimToken, step: NewStep, *, bind: object | None = None
    ) -> AbstractAsyncContextManager[AsyncSession]:
        """Give a session whose commit records the step."""
        return step_transaction(self._db, token, step, bind=bind)

    async def note(self, notes: Sequence[NewNotes]) -> int:
        """Keep lines and progress."""
        return await note(self._db, notes)

    # --- maintenance

    async def wake(self, batch: int = 1000) -> int:
        """End waits whose time has come."""
        return await waits.wake(self._db, batch)

    async def sweep_waits(self, after: JobId | None = None, batch: int = 1000) -> Swept:
        """Look for children that have ended."""
        return await waits.sweep_waits(self._db, after, batch)

    async def release_due(self, batch: int = 1000) -> int:
        """Move jobs that wait for other code."""
        return await versions.release_due(self._db, batch)

    # --- producers, operators and readers

    async def emit(self, event: NewEvent) -> Emitted:
        """Store an event and end the waits it matches."""
        return await events.emit(self._db, event)

    async def release_held(self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None) -> None:
        """Make a held job ready."""
        await admit(self._db, job_id, tenant)
        await versions.release_held(self._db, job_id, tenant=tenant, audit=audit)

    async def fork(
        self,
        job_id: JobId,
        *,
        new_id: JobId,
        from_step: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
        recode: Recode | None = None,
    ) -> Enqueued:
        """Make a new job with a job's history."""
        await admit(self._db, job_id, tenant)
        return await fork.fork(
            self._db, job_id, new_id=new_id, from_step=from_step, tenant=tenant, audit=audit, recode=recode
        )

    async def run(
        self, job_id: JobId, *, tenant: str | None = None, after: int = 0, values: int | None = None
    ) -> RunView | None:
        """Give a job's run."""
        return await run_view.run(self._db, job_id, tenant=tenant, after=after, values=values)

    async def events(self, query: EventQuery) -> tuple[EventView, ...]:
        """Give stored events."""
        return await look(self._db, lambda db: events.events(db, query))


_: type[RunStore] = RunVerbs
