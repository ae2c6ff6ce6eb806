"""The attempt ledger: one row per ended attempt that did not simply complete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ...domain.job import JobId
from ...domain.ledger import CAUSE_LATE, CAUSE_RETURNED
from ...domain.outcome import RULE_OF, ErrorInfo, OutcomeKind
from ...domain.snapshot import AttemptView
from ...domain.state import State
from .rows import Finished, Running
from .store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an attempt ended, in the ledger's words."""

    outcome: OutcomeKind
    cause: str
    error: ErrorInfo | None = None
    step: str | None = None


def close_attempt(store: Store, job_id: JobId, running: Running, end: End, *, now: datetime) -> None:
    """Write an attempt into the ledger, if its outcome has a row there."""
    if RULE_OF[end.outcome].ledger:
        store.record(job_id, _row(store, running, end, now))


def attempts(store: Store, job_id: JobId, *, tenant: str | None = None) -> tuple[AttemptView, ...]:
    """Give the ledger in order, the completing attempt last; see `JobDriver.attempts`."""
    with store.statement():
        envelope = store.envelopes.get(job_id)
        if envelope is None or tenant not in {None, envelope.job.tenant}:
            return ()
        rows = tuple(store.ledger.get(job_id, ()))
        match store.tokens.get(job_id):
            case Finished(state=State.DONE) as done:
                return (*rows, _completing(store, done))
            case _:
                return rows


def newest(store: Store, job_id: JobId) -> AttemptView | None:
    """Give the last row of a job's ledger."""
    rows = store.ledger.get(job_id)
    return rows[-1] if rows else None


def _row(store: Store, running: Running, end: End, now: datetime) -> AttemptView:
    worker = store.workers.get(running.worker_id)
    return AttemptView(
        number=running.counters.claim_no,
        outcome=end.outcome,
        cause=end.cause,
        counted=RULE_OF[end.outcome].counted,
        worker_id=running.worker_id,
        host=None if worker is None else worker.about.host,
        code_version=None if worker is None else worker.about.code_version,
        started_at=running.claimed_at,
        ended_at=now,
        step=end.step,
        error=end.error,
    )


def _completing(store: Store, done: Finished) -> AttemptView:
    worker = None if done.worker_id is None else store.workers.get(done.worker_id)
    return AttemptView(
        number=done.counters.claim_no,
        outcome=OutcomeKind.COMPLETED,
        cause=CAUSE_LATE if done.is_late else CAUSE_RETURNED,
        counted=RULE_OF[OutcomeKind.COMPLETED].counted,
        worker_id=done.worker_id,
        host=None if worker is None else worker.about.host,
        code_version=None if worker is None else worker.about.code_version,
        started_at=done.started_at,
        ended_at=done.finished_at,
    )
