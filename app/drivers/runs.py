"""The vocabulary of runs: steps are recorded, runs wait and are woken, events are emitted.

A part of the job store's protocol, apart because these verbs are about what happens inside a job. Suspending is a
settle (`Suspended`); its rules are here. Whoever ends a wait records the step in the commit that makes the job ready;
a suspend and whatever ends one of its waits take the same locks, so that one always sees the other. Implemented by
every driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from ..domain.audit import AuditEntry
from ..domain.event import Emitted, EventQuery, EventView, NewEvent
from ..domain.job import ClaimToken, Enqueued, JobId, RunId
from ..domain.sealed import Recode
from ..domain.step import NewNotes, NewStep, RunHistory, RunView


class Swept(NamedTuple):
    """One batch of a sweep over waits: how many runs it woke, and where the next batch begins; None at the end."""

    woken: int
    next_after: JobId | None


class RunStore(Protocol):
    """A store of runs and events."""

    # --- for the worker that holds the claim

    async def history(self, job_id: JobId, run_id: RunId) -> RunHistory:
        """Give what is recorded of a run and what it waits for, in one statement. Not fenced: it only reads."""
        ...

    async def record_step(self, token: ClaimToken, step: NewStep) -> bool:
        """Record a step; durable when this returns. False: the claim is gone, or its worker's lease has passed.

        Fenced by the whole token. A step is recorded once: repeating the call under the same claim changes nothing and
        answers True. Callers share statements; one caller's bad value fails that one alone (`REQUEST_INVALID`).
        """
        ...

    def step_transaction(
        self, token: ClaimToken, step: NewStep, *, bind: object | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """Give an `AsyncSession` whose commit writes the caller's changes and the step together, or neither.

        The fence is taken after the body, at the end: `LEASE_LOST` when the claim is gone, and nothing is written.
        `bind` is an engine of the caller's; `TRANSACTION_FOREIGN` where it is not on the store's own database, or the
        store is none.
        """
        ...

    async def note(self, notes: Sequence[NewNotes]) -> int:
        """Keep lines and progress of runs. Fenced, one by one; gives how many of the claims were held.

        Progress is replaced by later progress. Lines beyond `MAX_LOG_LINES` of a run are dropped.
        """
        ...

    # --- maintenance, by any worker

    async def wake(self, batch: int = 1000) -> int:
        """End waits whose time has come: sleeps, and events that did not come. Gives the number of waits ended.

        The step is recorded with no value. A job that is suspended becomes ready in the resumed lane; one that runs, or
        is dead, only has the step recorded. Runs that this store suspended over a call of a job that was there before,
        whose end nobody is told of, are woken too once that has ended, and counted.
        """
        ...

    async def sweep_waits(self, after: JobId | None = None, batch: int = 1000) -> Swept:
        """Look at one batch of calls of suspended jobs for children that have ended: what a wake that failed missed.

        In the order of the children's ids; calls of one child are looked at together. Other waits cost nothing.
        """
        ...

    async def release_due(self, batch: int = 1000) -> int:
        """Move jobs that wait for other code, any worker, no leader; gives their number.

        Held jobs become ready for their recorded code once a worker of it has come since they were held. Handed-back
        ones whose time is over, or whose code has no live worker any more, are held, or dead where that is what they
        wait with; a claim ends the hand-back. Live: the lease lasts, no drain has begun, and the worker
        serves the job's queue.
        """
        ...

    # --- producers and operators

    async def emit(self, event: NewEvent) -> Emitted:
        """Store an event and end the waits it matches, one of each run for each (name, key), the first that began.

        Atomic. Repeating the same id changes nothing and answers as before with `is_repeated`.
        """
        ...

    async def release_held(self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None) -> None:
        """Make a held job ready in the resumed lane, its run as it is.

        `JOB_NOT_FOUND`; `JOB_STATE_CONFLICT` (detail `state`) when it is not held.
        """
        ...

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
        """Make a new job of a job's type, payload and limits, with its history up to, not including, `from_step`.

        Without a step the whole history is copied; of what it waits for, calls that have failed go along. The new job
        has the id `new_id`, a run of another id, no idempotency key, the old one as its parent, fresh budgets, and is
        ready. Repeating the same id is safe. `JOB_NOT_FOUND`; `NOT_FOUND` for a step that the run has not recorded.
        `recode` gives the texts that are copied for the new job, where they are bound to the old one.
        """
        ...

    # --- readers

    async def run(
        self, job_id: JobId, *, tenant: str | None = None, after: int = 0, values: int | None = None
    ) -> RunView | None:
        """Give a job's run with its lines and children; None when absent or another tenant's.

        Of steps and lines only those whose `seq` is larger than `after`: whoever has the rest reads no more than is
        new. `values` bounds how many of these steps, from the first on, are given with their value: a page that shows
        ten does not read thousands.
        """
        ...

    async def events(self, query: EventQuery) -> tuple[EventView, ...]:
        """Give stored events, newest first."""
        ...
