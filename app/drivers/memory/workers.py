"""Workers' rows: register, show, close; and what a worker gives back without having ended it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ...domain.audit import AuditEntry
from ...domain.drain import LAST_PHASE, DrainAsk, DrainShown
from ...domain.job import ClaimToken, JobId, WorkerId
from ...domain.snapshot import NewWorker, Reaped
from ..protocol import Wake
from .audit import keep
from .reap import give_up
from .rows import Running, Worker
from .store import Store


def register_worker(store: Store, about: NewWorker) -> WorkerId:
    """Give a worker id with a lease that starts now; see `JobDriver.register_worker`."""
    with store.statement() as now:
        lease_until = now + timedelta(milliseconds=about.lease_ms)
        for worker in store.workers.values():
            if worker.about.boot_id == about.boot_id and worker.is_alive(now):
                worker.renewed_at, worker.lease_until = now, lease_until
                return worker.id
        worker_id = store.new_worker_id()
        store.workers[worker_id] = Worker(
            id=worker_id, about=about, started_at=now, renewed_at=now, lease_until=lease_until
        )
        return worker_id


def show_worker(store: Store, worker_id: WorkerId, *, wakeup: str | None, drain: DrainShown | None) -> None:
    """Show others how a worker does; see `FleetStore.show_worker`."""
    with store.statement() as now:
        worker = store.workers.get(worker_id)
        if worker is not None:
            worker.wakeup = wakeup
            if worker.has_drained:
                drain = replace(drain or DrainShown(phase=LAST_PHASE), phase=LAST_PHASE)
            worker.drain = drain
            left = None if drain is None else drain.left
            worker.drain_deadline_at = None if left is None else now + left
            if drain is not None and drain.told is not None and worker.drain_asked_at is None:
                worker.drain_asked_at = now - drain.told


def ask_drain(store: Store, worker_id: WorkerId, *, by: str, audit: AuditEntry | None) -> DrainAsk:
    """Ask a worker to drain; see `FleetStore.ask_drain`."""
    with store.statement(audit) as now:
        worker = store.workers.get(worker_id)
        if worker is None:
            return DrainAsk.UNKNOWN
        if not worker.is_alive(now):
            return DrainAsk.LEFT if worker.has_left else DrainAsk.LOST
        if worker.drain_asked_by is None:
            worker.drain_asked_at, worker.drain_asked_by = now, by
        store.bell.add(Wake.REVOKED)
        keep(store, audit, now)
        return DrainAsk.ASKED


def close_worker(store: Store, worker_id: WorkerId) -> None:
    """Close a worker in order; one that was reaped stays lost. See `JobDriver.close_worker`."""
    with store.statement() as now:
        worker = store.workers.get(worker_id)
        if worker is not None and worker.lost_at is None and worker.closed_at is None:
            worker.closed_at = now


def surrender(store: Store, worker_id: WorkerId) -> tuple[Reaped, ...]:
    """Give back every claim of a worker without a lease, and close it; see `JobDriver.surrender`."""
    with store.statement() as now:
        worker = store.workers.get(worker_id)
        if worker is not None and worker.closed_at is None:
            worker.closed_at = now
        return tuple(give_up(store, job_id, running, now) for job_id, running in store.claims_of(worker_id))


def release(store: Store, tokens: Sequence[ClaimToken]) -> int:
    """Hand back claims that were never begun; see `JobDriver.release`."""
    with store.statement() as now:
        named = {token.job_id: running for token in tokens if (running := store.fenced(token, now)) is not None}
        return _hand_back(store, named)


def reconcile(store: Store, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None) -> int:
    """Hand back claims the worker does not know of; see `JobDriver.reconcile`."""
    with store.statement() as now:
        worker = store.workers.get(worker_id)
        if worker is None or not worker.is_alive(now):
            return 0
        unknown = {
            job_id: running
            for job_id, running in store.claims_of(worker_id)
            if (before is None or running.claimed_at < before)
            and not any(token.job_id == job_id and running.is_named_by(token) for token in held)
        }
        return _hand_back(store, unknown)


def isolate(store: Store, token: ClaimToken) -> bool:
    """Record that a job runs alone in its worker; see `JobDriver.isolate`."""
    with store.statement() as now:
        running = store.fenced(token, now)
        if running is not None:
            store.tokens[token.job_id] = replace(running, is_alone=True)
        return running is not None


def _hand_back(store: Store, claims: Mapping[JobId, Running]) -> int:
    """Make claims ready again uncounted, in the order they had been ready in: they are the oldest work there is."""
    for job_id, running in sorted(claims.items(), key=lambda claim: claim[1].fence):
        store.resume(job_id, running.counters.uncounted())
    return len(claims)
