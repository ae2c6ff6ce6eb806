"""Maintenance over time: promote what is due, end what waited too long, purge what ended long ago."""

from __future__ import annotations

from datetime import datetime

from ...domain.job import JobId
from ...domain.state import DeadReason, State
from ..protocol import PurgeQuery
from .rows import Finished, Running, Waiting
from .store import Store


def promote(store: Store, batch: int) -> int:
    """Make due jobs ready, the longest due first; see `JobDriver.promote`."""
    with store.statement() as now:
        due = sorted(
            (token.due_at, job_id)
            for job_id, token in store.tokens.items()
            if isinstance(token, Waiting) and token.due_at <= now
        )[:batch]
        for _, job_id in due:
            token = store.tokens[job_id]
            if isinstance(token, Waiting):
                store.make_ready(job_id, token.counters, rank=token.rank)
        return len(due)


def expire(store: Store, batch: int) -> int:
    """End waiting jobs whose time is over, the longest over first; see `JobDriver.expire`."""
    with store.statement() as now:
        over = sorted(end for job_id in store.tokens for end in _over(store, job_id, now))[:batch]
        for _, job_id, reason in over:
            dead = Finished(counters=store.tokens[job_id].counters, state=State.DEAD, finished_at=now, reason=reason)
            store.place(job_id, dead)
        return len(over)


def purge(store: Store, query: PurgeQuery) -> int:
    """Delete one batch of old terminal jobs, by id; see `JobDriver.purge`."""
    with store.statement() as now:
        old = sorted(
            job_id
            for job_id, token in store.tokens.items()
            if isinstance(token, Finished) and token.state is query.state and token.finished_at < now - query.older_than
        )[: query.batch]
        for job_id in old:
            store.forget(job_id)
        return len(old)


def _over(store: Store, job_id: JobId, now: datetime) -> list[tuple[datetime, JobId, DeadReason]]:
    """Give the limit a waiting job has passed, the earlier of two: at most one entry."""
    token, envelope = store.tokens[job_id], store.envelopes[job_id]
    if isinstance(token, Running | Finished):
        return []
    limits = []
    if envelope.start_by is not None and token.counters.claim_no == 0:
        limits.append((envelope.start_by, job_id, DeadReason.EXPIRED))
    if envelope.deadline_at is not None:
        limits.append((envelope.deadline_at, job_id, DeadReason.DEADLINE))
    return sorted(limit for limit in limits if limit[0] <= now)[:1]
