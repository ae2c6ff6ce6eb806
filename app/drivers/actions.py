"""The vocabulary of operators: what they do to one job beside cancel and retry, and the audit of what they did.

A part of the job store's protocol, apart because no worker calls it. Every verb of an operator, here and in the other
parts, takes the row of the audit that speaks of it and keeps it in its own commit, with what it came to; an action that
is refused changes nothing and leaves none. Without one it leaves no row: then whoever calls has one for the whole.
Implemented by every driver. The refusals that drivers share are here, too.
"""

from __future__ import annotations

from typing import Protocol

from ..domain.audit import AuditEntry, AuditPage, AuditQuery
from ..domain.edit import DELETABLE, EDITABLE, RESCHEDULABLE, JobPatch, RunNowVerdict, version_of
from ..domain.errors import JobStateConflict, PreconditionFailed
from ..domain.job import Enqueued, JobId, NewJob
from ..domain.snapshot import JobView
from ..domain.state import State


class ActionStore(Protocol):
    """A store that operators act on."""

    async def run_now(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> RunNowVerdict:
        """Let a delayed job start at once, in the place it was to have; its counters and time limits stay.

        Sleeps of a suspended run end as if their time had come. A ready or running job is left alone, and the answer
        says so. `JOB_NOT_FOUND`; `JOB_STATE_CONFLICT` (detail `state`) in another state, and for a run that does not
        sleep. Looks again while the token is moving.
        """
        ...

    async def patch(
        self,
        job_id: JobId,
        patch: JobPatch,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Change fields of a job that waits; what is already in force changes nothing.

        With another priority a ready job is the last of its new one. With `versions`, only while the job is in one of
        them (`version_of`), else `PRECONDITION_FAILED`: of two calls with the same, one wins. `JOB_NOT_FOUND`;
        `JOB_STATE_CONFLICT` (detail `state`) for a job that runs or has ended, and for a new time of one that is
        suspended or held.
        """
        ...

    async def delete(
        self,
        job_id: JobId,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Delete a terminal or held job with all that is known of it: ledger, run, lines, limits.

        A held job's key is freed, and its called children are cancelled. Keys within their windows and sources stay, as
        after a purge. `JOB_NOT_FOUND`, `PRECONDITION_FAILED`, `JOB_STATE_CONFLICT` (detail `state`).
        """
        ...

    async def place(self, job: NewJob, *, audit: AuditEntry) -> Enqueued:
        """Store a job and the row of the audit in one commit. Repeating the same ids is safe; raises as `enqueue`."""
        ...

    # --- the audit

    async def keep_entry(self, entry: AuditEntry) -> None:
        """Keep a row about something that is done elsewhere, or in many commits. Repeating the same id is safe."""
        ...

    async def audit(self, query: AuditQuery) -> AuditPage:
        """Give one page of the audit, newest first."""
        ...


def refuse_stale(view: JobView, versions: frozenset[str] | None) -> None:
    """Refuse to act on a job that is not as the caller has seen it.

    Raises:
        PreconditionFailed: it has changed.
    """
    if versions is not None and version_of(view) not in versions:
        raise PreconditionFailed(
            f"job {view.id} has changed since it was read: it is {view.state} now",
            fix="read it again, decide again, and send its new ETag in If-Match",
            state=view.state.value,
        )


def refuse_edit(view: JobView, patch: JobPatch) -> None:
    """Refuse to change a job that is in no state for it.

    Raises:
        JobStateConflict: it runs or has ended; or its time is to change, and it waits for none.
    """
    if view.state not in EDITABLE:
        raise JobStateConflict(
            f"job {view.id} is {view.state}, and only jobs that wait can be changed",
            fix="duplicate it with the values it should have had, or wait until it waits again",
            state=view.state.value,
        )
    if patch.run_at is not None and view.state not in RESCHEDULABLE:
        raise JobStateConflict(
            f"job {view.id} is {view.state}: it waits for no time that could be changed",
            fix="leave run_at out; run it now, send its event, or release it to let it go on",
            state=view.state.value,
        )


def refuse_delete(view: JobView) -> None:
    """Refuse to delete a job that may still run.

    Raises:
        JobStateConflict: it is live, and not held.
    """
    if view.state not in DELETABLE:
        raise JobStateConflict(
            f"job {view.id} is {view.state}, and only held jobs and those that have ended can be deleted",
            fix="cancel it first",
            state=view.state.value,
        )


def cannot_run_now(job_id: JobId, state: State) -> JobStateConflict:
    """Give the refusal of a run-now where there is no time to pass over."""
    return JobStateConflict(f"job {job_id} is {state}, and waits for no time", fix=_TO_RUN[state], state=state.value)


_TO_RUN = {
    State.SUSPENDED: "send the event it waits for, or end the child; see its `waiting_on`",
    State.HELD: "release it, or retry it fresh or from a step",
    State.DEAD: "retry it",
    State.CANCELLED: "retry it",
    State.DONE: "duplicate it: that makes a new job",
}
