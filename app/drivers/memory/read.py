"""Reading jobs: one in full, a page of many, groups of dead ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from ...domain.job import JobId
from ...domain.snapshot import DeadGroup, JobPage, JobView
from ...domain.state import TERMINAL, State
from ..reading import ListQuery
from .attempts import newest
from .rows import Finished
from .steps import waits_shown
from .store import Store
from .view import view

# Name, reason, error type, error code.
_Kind: TypeAlias = tuple[str, str, str | None, str | None]


def describe(store: Store, job_id: JobId, *, tenant: str | None) -> JobView | None:
    """Give one job in full; see `JobDriver.describe`."""
    with store.statement() as now:
        return described(store, job_id, now, tenant=tenant)


def described(store: Store, job_id: JobId, now: datetime, *, tenant: str | None) -> JobView | None:
    """Give the same to a caller in a statement."""
    envelope = store.envelopes.get(job_id)
    if envelope is None or tenant not in {None, envelope.job.tenant}:
        return None
    return _with_run(store, view(store, envelope, now, is_full=True))


def list_jobs(store: Store, query: ListQuery) -> JobPage:
    """Give one page of jobs, newest id first; see `JobDriver.list`."""
    with store.statement() as now:
        found = [
            job_id
            for job_id in sorted(store.envelopes, reverse=True)
            if (query.before is None or job_id < query.before) and _fits(store, job_id, query)
        ]
        page = found[: query.limit]
        items = tuple(view(store, store.envelopes[job_id], now, is_full=False) for job_id in page)
        return JobPage(items=items, next_after=page[-1] if len(found) > len(page) else None)


def dead_letters(store: Store, *, tenant: str | None) -> tuple[DeadGroup, ...]:
    """Group dead letters, most first, then by words; see `JobDriver.dead_letters`."""
    groups: defaultdict[_Kind, list[datetime]] = defaultdict(list)
    with store.statement():
        for job_id, token in store.tokens.items():
            job = store.envelopes[job_id].job
            if isinstance(token, Finished) and token.state is State.DEAD and tenant in {None, job.tenant}:
                groups[_kind(store, job_id, token)].append(token.finished_at)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), [word or "" for word in group[0]]))
    return tuple(_group(kind, ended) for kind, ended in ordered)


def finished_among(store: Store, job_ids: Sequence[JobId]) -> frozenset[JobId]:
    """Say which of these jobs are terminal or gone; see `JobDriver.finished_among`."""
    with store.statement():
        return frozenset(job_id for job_id in job_ids if job_id not in store.tokens or store.state(job_id) in TERMINAL)


def _with_run(store: Store, shown: JobView) -> JobView:
    waits = waits_shown(store, shown.id) if shown.state is State.SUSPENDED else ()
    return replace(shown, progress=store.runs.progress.get(shown.id), waiting_on=waits)


def _fits(store: Store, job_id: JobId, query: ListQuery) -> bool:
    envelope = store.envelopes[job_id]
    job = envelope.job
    return (
        (not query.states or store.state(job_id) in query.states)
        and query.name in {None, job.name}
        and query.queue in {None, job.queue}
        and query.tenant in {None, job.tenant}
        and (query.created_after is None or envelope.created_at >= query.created_after)
        and (query.created_before is None or envelope.created_at < query.created_before)
    )


def _kind(store: Store, job_id: JobId, token: Finished) -> _Kind:
    row = newest(store, job_id)
    name, reason = store.envelopes[job_id].job.name, token.reason or ""
    if row is None or row.error is None:
        return (name, reason, None, None)
    return (name, reason, row.error.type, row.error.code)


def _group(kind: _Kind, ended: list[datetime]) -> DeadGroup:
    name, reason, error_type, error_code = kind
    return DeadGroup(
        name=name,
        reason=reason,
        error_type=error_type,
        error_code=error_code,
        count=len(ended),
        first_at=min(ended),
        last_at=max(ended),
    )
