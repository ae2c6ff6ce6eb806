"""How one job looks from outside: its envelope, its token, and the newest row of its ledger, put together."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from ...domain.job import JobId
from ...domain.ledger import error_of_end
from ...domain.outcome import ErrorInfo, OutcomeKind
from ...domain.snapshot import ClaimView, JobView
from ...domain.state import State
from .attempts import newest
from .rows import Dormant, Envelope, Finished, HeldBack, Ready, Running, Token, Wait, Waiting, state_of
from .store import Store


def view(store: Store, envelope: Envelope, now: datetime, *, is_full: bool) -> JobView:
    """Give one job as it stands; without `is_full` its payload and result stay out."""
    token = store.tokens[envelope.job.id]
    shown = _with_token(store, _envelope_view(store, envelope, token), token, now)
    return shown if is_full else replace(shown, payload=None, result=None)


def last_error(store: Store, job_id: JobId) -> ErrorInfo | None:
    """Give the error that an ended job shows: its last attempt's, or that of its end where no attempt left one."""
    row, token = newest(store, job_id), store.tokens[job_id]
    error = None if row is None else row.error
    if error is None and isinstance(token, Finished) and token.state is State.DEAD:
        return error_of_end(token.reason)
    return error


def _envelope_view(store: Store, envelope: Envelope, token: Token) -> JobView:
    job = envelope.job
    key = None if job.key_hash is None else store.keys.get(job.key_hash)
    row = newest(store, job.id)
    return JobView(
        id=job.id,
        run_id=envelope.run_id,
        name=job.name,
        queue=job.queue,
        state=state_of(token),
        state_reason=None,
        priority=job.priority,
        tenant=job.tenant,
        counters=token.counters,
        max_attempts=job.max_attempts,
        max_crashes=job.max_crashes,
        created_at=envelope.created_at,
        run_at=envelope.run_at,
        last_outcome=None if row is None else row.outcome,
        error=None if row is None else row.error,
        payload=job.payload,
        key=job.key,
        key_expires_at=None if key is None or key.job_id != job.id else key.expires_at,
        parent_id=job.parent_id,
        enqueued_by=job.enqueued_by,
        traceparent=job.traceparent,
        tags=job.tags,
        meta=job.meta,
        timeout_ms=None if job.timeout is None else job.timeout // timedelta(milliseconds=1),
    )


def _with_token(store: Store, shown: JobView, token: Token, now: datetime) -> JobView:
    match token:
        case Waiting(due_at=due_at, reason=reason):
            outcome = OutcomeKind.SUSPENDED if reason is Wait.SNOOZE else shown.last_outcome
            return replace(shown, run_at=due_at, state_reason=reason, last_outcome=outcome)
        case Running():
            return replace(shown, started_at=token.claimed_at, claim=_claim(store, token, now))
        case Dormant(kind=kind):
            return replace(shown, state_reason=kind, last_outcome=OutcomeKind.SUSPENDED)
        case HeldBack(reason=held_for):
            return replace(shown, state_reason=held_for)
        case Finished():
            return _with_end(shown, token)
        case Ready():
            return replace(shown, state_reason=store.limits.parked.get(shown.id))


def _with_end(shown: JobView, token: Finished) -> JobView:
    ended = replace(shown, state_reason=token.reason, started_at=token.started_at, finished_at=token.finished_at)
    if token.state is State.DEAD:
        return replace(ended, error=shown.error or error_of_end(token.reason))
    if token.state is not State.DONE:
        return ended
    return replace(ended, last_outcome=OutcomeKind.COMPLETED, error=None, result=token.result, late=token.is_late)


def _claim(store: Store, running: Running, now: datetime) -> ClaimView:
    worker = store.workers.get(running.worker_id)
    return ClaimView(
        worker_id=running.worker_id,
        claimed_at=running.claimed_at,
        lease_until=None if worker is None else worker.lease_until,
        heartbeat_age_ms=None if worker is None else (now - worker.renewed_at) // timedelta(milliseconds=1),
    )
