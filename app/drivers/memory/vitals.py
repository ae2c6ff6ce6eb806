"""The health of a store that is no server: what lies in it that nobody may be there for."""

from __future__ import annotations

from collections import Counter

from ...domain.vitals import LostLease, ReadyGroup, Vitals, WorkVitals
from .rows import Ready
from .store import Store


def vitals(store: Store) -> Vitals:
    """Give the facts; see `ReadStore.vitals`."""
    with store.statement() as now:
        groups: Counter[tuple[str, str, str]] = Counter()
        for job_id, token in store.tokens.items():
            if isinstance(token, Ready):
                job = store.envelopes[job_id].job
                groups[job.queue, job.name, "" if token.pin is None else token.pin.version] += 1
        gone = [
            worker
            for worker in store.workers.values()
            if worker.lost_at is None and worker.closed_at is None and worker.lease_until <= now
        ]
        live = {worker.id for worker in store.workers.values() if worker.is_alive(now)}
        work = WorkVitals(
            ready=tuple(
                ReadyGroup(queue=queue, name=name, version=version or None, count=count)
                for (queue, name, version), count in sorted(groups.items())
            ),
            lost=tuple(
                LostLease(worker_id=each.id, host=each.about.host, lease_until=each.lease_until) for each in gone
            ),
            stranded=sum(token.worker_id not in live for _, token in store.running()),
        )
        return Vitals(store="memory", is_durable=False, at=now, work=work)
