"""The memory driver's verbs of runs and events, over the same `Store`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from ...domain.audit import AuditEntry
from ...domain.event import Emitted, EventQuery, EventView, NewEvent
from ...domain.job import ClaimToken, Enqueued, JobId, RunId
from ...domain.sealed import Recode
from ...domain.step import NewNotes, NewStep, RunHistory, RunView
from ..runs import RunStore, Swept
from . import events, fork, steps, versions, waking
from .store import Store


class MemoryRuns:
    """A `RunStore` whose rows live in this process. What each verb does is said by the protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def history(self, job_id: JobId, run_id: RunId) -> RunHistory:
        """Give what is recorded of a run and what it waits for."""
        return steps.history(self._store, job_id, run_id)

    async def record_step(self, token: ClaimToken, step: NewStep) -> bool:
        """Record a step."""
        return steps.record_step(self._store, token, step)

    def step_transaction(
        self,
        token: ClaimToken,  # noqa: ARG002 - nothing is ever written here
        step: NewStep,  # noqa: ARG002 - same
        *,
        bind: object | None = None,  # noqa: ARG002 - same
    ) -> AbstractAsyncContextManager[Any]:
        """Refuse with `TRANSACTION_FOREIGN`: this store is in no database."""
        return steps.NoTransaction()

    async def note(self, notes: Sequence[NewNotes]) -> int:
        """Keep lines and progress of runs."""
        return steps.note(self._store, notes)

    async def emit(self, event: NewEvent) -> Emitted:
        """Store an event and end the waits it matches."""
        return events.emit(self._store, event)

    async def release_held(self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None) -> None:
        """Make a held job ready."""
        versions.release_held(self._store, job_id, tenant=tenant, audit=audit)

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
        return fork.fork(
            self._store, job_id, new_id=new_id, from_step=from_step, tenant=tenant, audit=audit, recode=recode
        )

    async def run(
        self, job_id: JobId, *, tenant: str | None = None, after: int = 0, values: int | None = None
    ) -> RunView | None:
        """Give a job's run."""
        return steps.run_view(self._store, job_id, tenant=tenant, after=after, values=values)

    async def events(self, query: EventQuery) -> tuple[EventView, ...]:
        """Give stored events."""
        return events.events(self._store, query)

    async def wake(self, batch: int = 1000) -> int:
        """End waits whose time has come."""
        return waking.wake(self._store, batch)

    async def sweep_waits(self, after: JobId | None = None, batch: int = 1000) -> Swept:
        """Look for children that have ended."""
        return waking.sweep_waits(self._store, after, batch)

    async def release_due(self, batch: int = 1000) -> int:
        """Move jobs that wait for other code."""
        return versions.release_due(self._store, batch)


_: type[RunStore] = MemoryRuns
