"""Reap: close workers whose lease has passed and take their claims over, each with the outcome it deserves."""

from __future__ import annotations

from datetime import datetime

from ...domain.job import JobId
from ...domain.ledger import (
    CAUSE_ABANDONED,
    CAUSE_LEASE_LOST,
    CAUSE_WORKER_CLOSED,
    CAUSE_WORKER_VANISHED,
    CRASHED_TOO_OFTEN,
)
from ...domain.outcome import OutcomeKind
from ...domain.snapshot import Reaped
from ...domain.state import DeadReason, State
from ..protocol import Wake
from .attempts import End, close_attempt
from .rows import Running, Worker
from .store import Store
from .waking import wake_parents


def reap(store: Store, batch: int) -> tuple[Reaped, ...]:
    """Take over claims of closed, lost and absent workers; see `JobDriver.reap`.

    A memory store starts and ends with its workers, so there is no outage of its own to wait out.
    """
    with store.statement() as now:
        _close_expired(store, now)
        orphans = [(job_id, running) for job_id, running in store.running() if _is_orphan(store, running)]
        taken = tuple(_take_over(store, job_id, running, now) for job_id, running in orphans[:batch])
        wake_parents(store, [one.job_id for one in taken if one.is_dead], now)
        return taken


def any_to_reap(store: Store, now: datetime) -> bool:
    """Say whether a reap would find a worker to close or a claim to take over; for a caller in a statement."""
    return any(_has_lapsed(worker, now) for worker in store.workers.values()) or any(
        _is_orphan(store, running) for _, running in store.running()
    )


def _taken_over(
    store: Store, job_id: JobId, running: Running, end: End, *, now: datetime, is_dead: bool = False
) -> Reaped:
    """Give the report on a claim that was taken over."""
    job = store.envelopes[job_id].job
    return Reaped(
        job_id=job_id,
        name=job.name,
        queue=job.queue,
        claim_no=running.counters.claim_no,
        worker_id=running.worker_id,
        outcome=end.outcome,
        cause=end.cause,
        attempt=running.counters.attempt,
        lasted=now - running.claimed_at,
        is_dead=is_dead,
    )


def give_up(store: Store, job_id: JobId, running: Running, now: datetime) -> Reaped:
    """Close an attempt of a worker that lost its lease and said so."""
    end = End(outcome=OutcomeKind.LEASE_LOST, cause=CAUSE_LEASE_LOST)
    close_attempt(store, job_id, running, end, now=now)
    store.resume(job_id, running.counters.uncounted())
    return _taken_over(store, job_id, running, end, now=now)


def _close_expired(store: Store, now: datetime) -> None:
    for worker in store.workers.values():
        if _has_lapsed(worker, now):
            worker.lost_at = now


def _has_lapsed(worker: Worker, now: datetime) -> bool:
    return worker.lost_at is None and worker.closed_at is None and worker.lease_until <= now


def _is_orphan(store: Store, running: Running) -> bool:
    worker = store.workers.get(running.worker_id)
    return worker is None or worker.lost_at is not None or worker.closed_at is not None


def _take_over(store: Store, job_id: JobId, running: Running, now: datetime) -> Reaped:
    store.bell.add(Wake.REVOKED)
    worker = store.workers.get(running.worker_id)
    if running.is_abandoned:
        return _interrupt(store, job_id, running, CAUSE_ABANDONED, now)
    if worker is not None and (worker.lost_at is None or worker.has_drained):
        return _interrupt(store, job_id, running, CAUSE_WORKER_CLOSED, now)
    if worker is not None and worker.closed_at is not None:
        return give_up(store, job_id, running, now)
    return _crash(store, job_id, running, now)


def _interrupt(store: Store, job_id: JobId, running: Running, cause: str, now: datetime) -> Reaped:
    end = End(outcome=OutcomeKind.INTERRUPTED, cause=cause)
    close_attempt(store, job_id, running, end, now=now)
    store.resume(job_id, running.counters.interrupted())
    return _taken_over(store, job_id, running, end, now=now)


def _crash(store: Store, job_id: JobId, running: Running, now: datetime) -> Reaped:
    max_crashes = store.envelopes[job_id].job.max_crashes
    counters = running.counters.crashed(max_crashes=max_crashes, ran_alone=running.is_alone)
    is_dead = counters.crashes >= max_crashes
    error = CRASHED_TOO_OFTEN if is_dead else None
    end = End(outcome=OutcomeKind.CRASHED, cause=CAUSE_WORKER_VANISHED, error=error)
    close_attempt(store, job_id, running, end, now=now)
    if is_dead:
        store.place(job_id, running.ended(State.DEAD, counters, now, reason=DeadReason.CRASHED_TOO_OFTEN))
    else:
        store.resume(job_id, counters)
    return _taken_over(store, job_id, running, end, now=now, is_dead=is_dead)
