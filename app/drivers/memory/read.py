"""Reading jobs: one in full, a page of many, groups of dead ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from ...domain.error_shape import READ_CHARS
from ...domain.job import JobId
from ...domain.snapshot import HOURS, DeadGroup, JobCount, JobPage, JobView, Place, PlacedPage
from ...domain.state import TERMINAL, State
from ..reading import MOST_COUNTED, ListQuery, TimeOrder, TimeSort, beside, newer_than, not_newer_than
from .attempts import newest
from .rows import Finished, Ready, Waiting
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
        fitting = [job_id for job_id in sorted(store.envelopes, reverse=True) if _fits(store, job_id, query, now)]
        if query.after is not None:
            newer = [job_id for job_id in fitting if job_id > query.after]
            page = newer[-query.limit :]
            is_first = len(newer) <= query.limit
            below = not_newer_than(query.after, page[-1] if page else None)
            return JobPage(items=_shown(store, page, now), next_after=below, newer_than=None if is_first else page[0])
        older = [job_id for job_id in fitting if query.before is None or job_id < query.before]
        page = older[: query.limit]
        return JobPage(
            items=_shown(store, page, now),
            next_after=page[-1] if len(older) > len(page) else None,
            newer_than=newer_than(query.before, page[0] if page else None),
        )


def list_by_time(store: Store, query: ListQuery, order: TimeOrder) -> PlacedPage:
    """Give one page in the order of a time; see `ReadStore.list_by_time`."""
    is_ascending = order.is_ascending is not order.is_back
    with store.statement() as now:
        placed = [
            (Place(at, shown.id), shown)
            for shown in (view(store, store.envelopes[job_id], now, is_full=False) for job_id in store.envelopes)
            if _fits(store, shown.id, query, now)
            if (at := shown.run_at if order.sort is TimeSort.RUN_AT else shown.finished_at) is not None
            if order.place is None or _is_beyond(Place(at, shown.id), order.place, is_ascending=is_ascending)
        ]
    placed.sort(key=lambda one: one[0], reverse=not is_ascending)
    page = placed[: query.limit]
    items = tuple(shown for _, shown in page)
    goes_on = page[-1][0] if len(placed) > len(page) else None
    back_to = None if order.place is None else page[0][0] if page else beside(order.place, order)
    if order.is_back:
        return PlacedPage(items=items[::-1], next_place=back_to, prev_place=goes_on)
    return PlacedPage(items=items, next_place=goes_on, prev_place=back_to)


def _is_beyond(place: Place, other: Place, *, is_ascending: bool) -> bool:
    return place > other if is_ascending else place < other


def count_jobs(store: Store, query: ListQuery) -> JobCount:
    """Count the jobs that fit; see `ReadStore.count_jobs`."""
    with store.statement() as now:
        count = sum(_fits(store, job_id, query, now) for job_id in store.envelopes)
        return JobCount(value=min(count, MOST_COUNTED), is_capped=count > MOST_COUNTED)


def count_waiting(store: Store, tenant: str, most: int) -> int:
    """Count a tenant's ready and delayed jobs; see `ReadStore.count_waiting`."""
    with store.statement():
        waiting = (job_id for job_id, token in store.tokens.items() if isinstance(token, Ready | Waiting))
        return min(most, sum(store.envelopes[job_id].job.tenant == tenant for job_id in waiting))


def dead_letters(store: Store, *, tenant: str | None) -> tuple[DeadGroup, ...]:
    """Group dead letters, most first, then by words; see `JobDriver.dead_letters`."""
    groups: defaultdict[_Kind, list[tuple[JobId, datetime]]] = defaultdict(list)
    with store.statement() as now:
        for job_id, token in store.tokens.items():
            job = store.envelopes[job_id].job
            if isinstance(token, Finished) and token.state is State.DEAD and tenant in {None, job.tenant}:
                groups[kind_of(store, job_id, token)].append((job_id, token.finished_at))
        ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), [word or "" for word in group[0]]))
        return tuple(_group(store, kind, ended, now) for kind, ended in ordered)


def finished_among(store: Store, job_ids: Sequence[JobId]) -> frozenset[JobId]:
    """Say which of these jobs are terminal or gone; see `JobDriver.finished_among`."""
    with store.statement():
        return frozenset(job_id for job_id in job_ids if job_id not in store.tokens or store.state(job_id) in TERMINAL)


def _with_run(store: Store, shown: JobView) -> JobView:
    waits = waits_shown(store, shown.id) if shown.state is State.SUSPENDED else ()
    return replace(shown, progress=store.runs.progress.get(shown.id), waiting_on=waits)


def _shown(store: Store, page: Sequence[JobId], now: datetime) -> tuple[JobView, ...]:
    return tuple(view(store, store.envelopes[job_id], now, is_full=False) for job_id in page)


def _fits(store: Store, job_id: JobId, query: ListQuery, now: datetime) -> bool:
    envelope = store.envelopes[job_id]
    job = envelope.job
    shown = view(store, envelope, now, is_full=False)
    return (
        (not query.states or store.state(job_id) in query.states)
        and query.name in {None, job.name}
        and query.queue in {None, job.queue}
        and query.tenant in {None, job.tenant}
        and (query.created_after is None or envelope.created_at >= query.created_after)
        and (query.created_before is None or envelope.created_at < query.created_before)
        and (not query.tags_any or not set(query.tags_any).isdisjoint(job.tags))
        and set(query.tags_all) <= set(job.tags)
        and query.key in {None, job.key}
        and query.parent_id in {None, job.parent_id}
        and _stands(shown, query)
    )


def _stands(shown: JobView, query: ListQuery) -> bool:
    """Say whether where a job stands fits."""
    ended = shown.finished_at
    return (
        (query.finished_after is None or (ended is not None and ended >= query.finished_after))
        and (query.finished_before is None or (ended is not None and ended < query.finished_before))
        and (query.run_at_after is None or (shown.run_at is not None and shown.run_at >= query.run_at_after))
        and (query.run_at_before is None or (shown.run_at is not None and shown.run_at < query.run_at_before))
        and (query.worker_id is None or (shown.claim is not None and shown.claim.worker_id == query.worker_id))
        and (query.error_code is None or (shown.error is not None and shown.error.code == query.error_code))
    )


def kind_of(store: Store, job_id: JobId, token: Finished) -> _Kind:
    """Give what a dead letter is grouped by."""
    row = newest(store, job_id)
    name, reason = store.envelopes[job_id].job.name, token.reason or ""
    if row is None or row.error is None:
        return (name, reason, None, None)
    return (name, reason, row.error.type, row.error.code)


def _group(store: Store, kind: _Kind, ended: list[tuple[JobId, datetime]], now: datetime) -> DeadGroup:
    name, reason, error_type, error_code = kind
    times = [at for _, at in ended]
    began = now - timedelta(hours=HOURS)
    hours = Counter((at - began) // timedelta(hours=1) for at in times if at >= began)
    row = newest(store, max(ended)[0])
    return DeadGroup(
        name=name,
        reason=reason,
        error_type=error_type,
        error_code=error_code,
        count=len(ended),
        first_at=min(times),
        last_at=max(times),
        per_hour=tuple(hours[hour] + (hours[HOURS] if hour == HOURS - 1 else 0) for hour in range(HOURS)),
        error_message=None if row is None or row.error is None else row.error.message[:READ_CHARS],
    )
