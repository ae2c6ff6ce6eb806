"""Cancel: end a job for good, wherever it is, with the children its run waits for, and say where it was found."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.errors import JobNotFound
from ...domain.job import Counters, JobId
from ...domain.ledger import CAUSE_OPERATOR
from ...domain.outcome import PARENT_CANCELLED, CancelVerdict, OutcomeKind
from ...domain.state import State
from ..protocol import Wake
from .attempts import End, close_attempt
from .audit import keep
from .rows import Envelope, Finished, Running
from .run_rows import WaitRow
from .store import Store
from .waking import wake_parents


def cancel(
    store: Store, job_id: JobId, *, reason: str, tenant: str | None, audit: AuditEntry | None = None
) -> CancelVerdict:
    """End a job; see `JobDriver.cancel`.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
    """
    with store.statement(audit) as now:
        envelope_for(store, job_id, tenant)
        verdict = _cancel(store, job_id, reason, now)
        if verdict is not CancelVerdict.ALREADY_FINISHED:
            drop_waits(store, job_id, now)
            wake_parents(store, [job_id], now)
        keep(store, None if audit is None else audit.came_to(verdict.value), now)
        return verdict


def drop_waits(store: Store, job_id: JobId, now: datetime) -> None:
    """End what a run waits for, without a step: its children are cancelled, and what they wait for.

    Calls that have failed stay: the run may have gone on from there.
    """
    waits = store.runs.waits_of(job_id)
    for wait in waits:
        if not is_kept(store, wait):
            store.runs.drop_wait(job_id, wait.name)
    cancel_children(store, job_id, waits, now)


def is_kept(store: Store, wait: WaitRow) -> bool:
    """Say whether it is a call whose child has ended, or whose failure the run was told of."""
    return wait.child_id is not None and (
        not wait.is_awaited or isinstance(store.tokens.get(wait.child_id), Finished | None)
    )


def cancel_children(store: Store, job_id: JobId, waits: Iterable[WaitRow], now: datetime) -> None:
    """Cancel the children that a job waits for; one that was there before the call, and is not its own, goes on."""
    for wait in waits:
        child = None if wait.child_id is None else store.envelopes.get(wait.child_id)
        if child is None or child.job.parent_id != job_id:
            continue
        if _cancel(store, child.job.id, PARENT_CANCELLED, now) is not CancelVerdict.ALREADY_FINISHED:
            drop_waits(store, child.job.id, now)
            wake_parents(store, [child.job.id], now)


def envelope_for(store: Store, job_id: JobId, tenant: str | None) -> Envelope:
    """Give the envelope of a job that must be there for this tenant; None is every tenant.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
    """
    envelope = store.envelopes.get(job_id)
    if envelope is None or tenant not in {None, envelope.job.tenant}:
        raise JobNotFound(
            f"there is no job {job_id}", fix="check the id; finished jobs are deleted after their retention"
        )
    return envelope


def _cancel(store: Store, job_id: JobId, reason: str, now: datetime) -> CancelVerdict:
    match store.tokens[job_id]:
        case Finished():
            return CancelVerdict.ALREADY_FINISHED
        case Running() as running:
            _revoke(store, job_id, running, reason, now)
            return CancelVerdict.SIGNALLED
        case waiting:
            _end(store, job_id, waiting.counters, reason, now)
            begun = waiting.counters.claim_no > 0
            return CancelVerdict.CANCELLED_WHILE_WAITING if begun else CancelVerdict.CANCELLED_BEFORE_START


def _revoke(store: Store, job_id: JobId, running: Running, reason: str, now: datetime) -> None:
    end = End(outcome=OutcomeKind.CANCELLED, cause=CAUSE_OPERATOR)
    close_attempt(store, job_id, running, end, now=now)
    store.place(job_id, running.ended(State.CANCELLED, running.counters.uncounted(), now, reason=reason))
    store.bell.add(Wake.REVOKED)


def _end(store: Store, job_id: JobId, counters: Counters, reason: str, now: datetime) -> None:
    store.place(job_id, Finished(counters=counters, state=State.CANCELLED, finished_at=now, reason=reason))
