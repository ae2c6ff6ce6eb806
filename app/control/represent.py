"""How a job, an attempt, a queue, a worker and a job type look from outside: the field names of the HTTP API.

Pure projections of the store's views; they decide nothing. Payload, result and meta go through untouched as text.
Called by the HTTP routers and by the command line's `--json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ..domain.edit import version_of
from ..domain.errors import error_classes
from ..domain.job import NewJob
from ..domain.json_text import members
from ..domain.outbox import MOST_COUNTED, OutboxView, QuarantinedRow
from ..domain.outcome import ErrorInfo, OutcomeKind
from ..domain.redaction import redacted
from ..domain.snapshot import AttemptView, JobTypeDoc, JobView, QueueView, WorkerView
from ..domain.state import LIVE, DeadReason, State
from .render import Document, raw
from .run_documents import SNOOZING, between_ms, progress_document, waiting_document

_SNOOZED = "snooze"
_RESOURCES = ("result", "attempts", "steps", "timeline", "logs", "events")
_MILLISECOND = timedelta(milliseconds=1)


def job_document(view: JobView, *, with_payload: bool = True, root: str = "", redact: Sequence[str] = ()) -> Document:
    """Give the representation of one job.

    `with_payload=False` leaves payload and result out: lists never carry them, nor do answers to callers who may not
    read them. `root` is the path the service is mounted under. `redact` names places that are left out of both.
    """
    document: Document = {
        "id": view.id,
        "run_id": view.run_id,
        "name": view.name,
        "queue": view.queue,
        "state": view.state,
        "state_reason": view.state_reason,
        "last_outcome": view.last_outcome,
        "attempt": view.counters.attempt,
        "max_attempts": view.max_attempts,
        "claim_no": view.counters.claim_no,
        "crashes": view.counters.crashes,
        "max_crashes": view.max_crashes,
        "interrupts": view.counters.interrupts,
        "priority": view.priority,
        "tenant": view.tenant,
        "run_at": view.run_at,
        "created_at": view.created_at,
        "started_at": view.started_at,
        "finished_at": view.finished_at,
        "wait_ms": _wait_ms(view),
        "duration_ms": between_ms(view.started_at, view.finished_at),
        "timeout_ms": view.timeout_ms,
        "late": view.late,
        "claim": _claim_document(view),
        "error": _job_error(view),
        "progress": None if view.progress is None else progress_document(view.progress),
        "waiting_on": _waiting_on(view),
        "tags": list(view.tags),
        "meta": raw(view.meta),
        "idempotency_key": view.key,
        "key_expires_at": view.key_expires_at,
        "parent_id": view.parent_id,
        "enqueued_by": view.enqueued_by,
        "trace": _trace(view.traceparent),
        "version": version_of(view),
        "links": links_of(str(view.id), root),
    }
    if with_payload:
        document["payload"] = raw(redacted(view.payload, redact))
        document["result"] = raw(redacted(view.result, redact))
    return document


def receipt_document(job: NewJob, *, job_id: str, run_id: str, root: str = "") -> Document:
    """Give what is known of a job that a key still stands for although it was purged: its ids, and no state."""
    return {"id": job_id, "run_id": run_id, "name": job.name, "state": None, "links": links_of(job_id, root)}


def attempt_document(attempt: AttemptView) -> Document:
    """Give one row of the attempt ledger."""
    error = attempt.error
    return {
        "number": attempt.number,
        "outcome": attempt.outcome,
        "cause": attempt.cause,
        "counted": attempt.counted,
        "worker_id": None if attempt.worker_id is None else str(attempt.worker_id),
        "host": attempt.host,
        "code_version": attempt.code_version,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "duration_ms": between_ms(attempt.started_at, attempt.ended_at),
        "step": attempt.step,
        "error": None if error is None else error_document(error) | {"traceback": error.traceback},
    }


def error_document(error: ErrorInfo) -> Document:
    """Give why an attempt failed, without its traceback."""
    return {
        "type": error.type,
        "message": error.message,
        "code": error.code,
        "retryable": _is_retryable(error),
    }


def queue_document(queue: QueueView, *, tenant: str | None = None) -> Document:
    """Give one queue: its depth by live state, the age of its oldest ready job, its pause, limits and turns.

    A caller of one tenant is told of no other one's weight.
    """
    age = queue.oldest_ready_seconds
    return {
        "name": queue.name,
        "depth": {state.value: queue.depth.get(state, 0) for state in State if state in LIVE},
        "oldest_ready_ms": None if age is None else max(0, round(age * 1000)),
        "is_paused": queue.paused_at is not None,
        "paused_at": queue.paused_at,
        "paused_by": queue.paused_by,
        "pause_reason": queue.pause_reason,
        "paused_until": queue.paused_until,
        "concurrency": queue.concurrency,
        "max_depth": queue.max_depth,
        "is_fair": queue.is_fair,
        "weights": {name: weight for name, weight in queue.weights.items() if tenant in {None, name}},
        "version": queue.version,
    }


def worker_document(worker: WorkerView) -> Document:
    """Give one worker process as the store knows it."""
    return {
        "id": str(worker.id),
        "host": worker.host,
        "pid": worker.pid,
        "code_version": worker.code_version,
        "queues": list(worker.queues),
        "concurrency": worker.concurrency,
        "running": worker.running,
        "started_at": worker.started_at,
        "lease_expires_at": worker.lease_until,
        "heartbeat_age_ms": worker.heartbeat_age_ms,
        "drain_phase": worker.drain_phase,
        "drain_reason": worker.drain_reason,
        "drain_deadline_at": worker.drain_deadline_at,
        "drain_asked_at": worker.drain_asked_at,
        "drain_asked_by": worker.drain_asked_by,
        "wakeup": worker.wakeup,
        "lost_at": worker.lost_at,
        "closed_at": worker.closed_at,
    }


def job_type_document(published: JobTypeDoc) -> Document:
    """Give a published job type: what its workers say of it, untouched, and when they said it."""
    document: Document = {name: raw(text) for name, text in members(published.document).items()}
    return document | {
        "name": published.name,
        "code_version": published.code_version,
        "published_at": published.published_at,
    }


def outbox_document(view: OutboxView) -> Document:
    """Give the representation of the outbox."""
    return {
        "staged": _count(view.staged),
        "claimed": _count(view.claimed),
        "quarantined": _count(view.quarantined),
        "deferred": _count(view.deferred),
        "lag_ms": view.lag // _MILLISECOND,
        "oldest_at": view.oldest_at,
        "items": [_quarantined(item) for item in view.items],
    }


def _count(value: int) -> Document:
    return {"value": value, "capped": value >= MOST_COUNTED}


def _quarantined(item: QuarantinedRow) -> Document:
    return {
        "id": item.id,
        "name": item.name,
        "queue": item.queue,
        "tenant": item.tenant,
        "staged_at": item.staged_at,
        "quarantined_at": item.quarantined_at,
        "code": item.code,
        "message": item.message,
    }


def links_of(job_id: str, root: str = "") -> Document:
    """Give the addresses of a job's resources below `root`."""
    here = f"{root}/v1/jobs/{job_id}"
    return {"self": here, **{name: f"{here}/{name}" for name in _RESOURCES}}


def _is_retryable(error: ErrorInfo) -> bool:
    """Say whether an error of this kind is worth another attempt: coded ones say so themselves, others are."""
    known = error_classes().get(error.code or "")
    return known is None or not known.terminal


def _job_error(view: JobView) -> Document | None:
    if view.error is None:
        return None
    document = error_document(view.error)
    if view.state is State.DEAD and view.state_reason == DeadReason.TERMINAL:
        document["retryable"] = False
    return document


def _claim_document(view: JobView) -> Document | None:
    claim = view.claim
    if claim is None:
        return None
    return {
        "worker_id": str(claim.worker_id),
        "claimed_at": claim.claimed_at,
        "expires_at": claim.lease_until,
        "heartbeat_age_ms": claim.heartbeat_age_ms,
    }


def _waiting_on(view: JobView) -> Document | None:
    if view.state is State.DELAYED and view.last_outcome is OutcomeKind.SUSPENDED and view.state_reason == _SNOOZED:
        return SNOOZING | {"until": view.run_at}
    return waiting_document(view.waiting_on)


def _trace(traceparent: str | None) -> Document | None:
    parts = (traceparent or "").split("-")
    return {"trace_id": parts[1]} if len(parts) > 1 else None


def _wait_ms(view: JobView) -> int | None:
    """Only the first attempt's wait is known: when a retried job became ready again is not kept."""
    if view.counters.claim_no != 1:
        return None
    due = max(view.run_at, view.created_at) if view.run_at is not None else view.created_at
    return between_ms(due, view.started_at)
