"""The store as a whole: counts, queues, workers, published job types."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.job import JobId
from ...domain.limit import rules_of
from ...domain.snapshot import JobTypeDoc, QueueView, Stats, WorkerView
from ...domain.state import State
from .audit import keep
from .limit_versions import show
from .rows import Ready, Worker
from .store import Store

# How long a worker that left stays in the list.
_LEFT_SHOWN = timedelta(hours=1)


def stats(store: Store) -> Stats:
    """Count jobs by state and queue; see `JobDriver.stats`."""
    with store.statement() as now:
        views = _queues(store, now)
        by_state = {state: sum(view.depth[state] for view in views) for state in State}
        return Stats(by_state=by_state, queues=views, slots_held=len(store.limits.slots))


def queues(store: Store) -> tuple[QueueView, ...]:
    """Give every queue that has jobs or a setting, by name; see `JobDriver.queues`."""
    with store.statement() as now:
        return _queues(store, now)


def workers(store: Store) -> tuple[WorkerView, ...]:
    """Give live workers and those that left lately, newest first; see `JobDriver.workers`."""
    with store.statement() as now:
        return workers_at(store, now)


def workers_at(store: Store, now: datetime) -> tuple[WorkerView, ...]:
    """Give the same to a caller in a statement."""
    shown = [worker for worker in store.workers.values() if _is_shown(worker, now)]
    return tuple(_worker_view(store, worker, now) for worker in sorted(shown, key=_by_id, reverse=True))


def publish_job_types(store: Store, types: Sequence[JobTypeDoc]) -> None:
    """Show job types; see `JobDriver.publish_job_types`."""
    with store.statement() as now:
        store.job_types.update({doc.name: replace(doc, published_at=now) for doc in types})
        for doc in {doc.name: doc for doc in types}.values():
            show(store, doc.name, doc.code_version, rules_of(doc.document), now)


def job_types(store: Store) -> tuple[JobTypeDoc, ...]:
    """Give every published job type, by name; see `JobDriver.job_types`."""
    with store.statement():
        return tuple(doc for _, doc in sorted(store.job_types.items()))


def _keep(store: Store, audit: AuditEntry | None, now: datetime, *, is_change: bool) -> None:
    keep(store, None if audit is None else audit.came_to(audit.outcome if is_change else UNCHANGED), now)


def _queues(store: Store, now: datetime) -> tuple[QueueView, ...]:
    depths: defaultdict[str, Counter[State]] = defaultdict(Counter)
    for job_id in store.tokens:
        depths[store.queue_of(job_id)][store.state(job_id)] += 1
    paused = {queue for queue in store.pauses if store.pause_of(queue, now) is not None}
    names = sorted({*depths, *paused, *store.concurrency, *store.max_depth, *store.turns.fair})
    return tuple(_queue_view(store, name, depths[name], _oldest(store, name), now) for name in names)


def _oldest(store: Store, queue: str) -> datetime | None:
    """Give since when the oldest of a queue is ready: of each rank the first in line, which is the oldest there.

    Behind it a job may be older that was given this priority later. Of those in the gate all are looked at.
    """
    firsts: dict[int, JobId] = {}
    for rank, _, job_id in store.queue(queue):
        firsts.setdefault(rank, job_id)
    gated = (job_id for _, _, job_id in store.gate(queue))
    tokens = (store.tokens[job_id] for job_id in (*firsts.values(), *gated))
    return min((token.since for token in tokens if isinstance(token, Ready)), default=None)


def _queue_view(store: Store, name: str, depth: Counter[State], oldest: datetime | None, now: datetime) -> QueueView:
    pause = store.pause_of(name, now)
    return QueueView(
        name=name,
        depth={state: depth[state] for state in State},
        oldest_ready_seconds=None if oldest is None else (now - oldest).total_seconds(),
        paused_at=None if pause is None else pause.at,
        paused_by=None if pause is None else pause.by,
        pause_reason=None if pause is None else pause.reason,
        paused_until=None if pause is None else pause.until,
        concurrency=store.concurrency.get(name),
        max_depth=store.max_depth.get(name),
        is_fair=name in store.turns.fair,
        weights=store.turns.weights(name),
    )


def _is_shown(worker: Worker, now: datetime) -> bool:
    left = worker.lost_at if worker.closed_at is None else worker.closed_at
    return left is None or left > now - _LEFT_SHOWN


def _by_id(worker: Worker) -> int:
    return worker.id


def _worker_view(store: Store, worker: Worker, now: datetime) -> WorkerView:
    return WorkerView(
        id=worker.id,
        host=worker.about.host,
        pid=worker.about.pid,
        code_version=worker.about.code_version,
        queues=worker.about.queues,
        concurrency=worker.about.concurrency,
        started_at=worker.started_at,
        lease_until=worker.lease_until,
        heartbeat_age_ms=(now - worker.renewed_at) // timedelta(milliseconds=1),
        lost_at=worker.lost_at,
        closed_at=worker.closed_at,
        drain_phase=None if worker.drain is None else worker.drain.phase,
        drain_reason=None if worker.drain is None else worker.drain.reason,
        drain_deadline_at=worker.drain_deadline_at,
        drain_asked_at=worker.drain_asked_at,
        drain_asked_by=worker.drain_asked_by,
        wakeup=worker.wakeup,
        running=len(store.claims_of(worker.id)),
        names=worker.about.names,
    )
