"""The audit: rows kept within the statement of the action they speak of, and pages of them."""

from __future__ import annotations

import json
from datetime import datetime
from uuid import UUID

from ...domain.audit import MAX_DETAILS_BYTES, SHARED, AuditEntry, AuditPage, AuditQuery, AuditView, Target
from ...domain.job import JobId
from .store import Store


def keep(store: Store, entry: AuditEntry | None, now: datetime) -> None:
    """Keep a row within a statement that began already, once for each id; nothing without an entry."""
    if entry is None or any(row.id == entry.id for row in store.audit):
        return
    if entry.request is not None:
        row = store.requests[entry.request.id]
        row.effect = row.effect or entry.effect
    text = json.dumps(dict(entry.details), ensure_ascii=True, allow_nan=False, default=str)
    view = AuditView(
        seq=store.audit[-1].seq + 1 if store.audit else 1,
        id=entry.id,
        at=now,
        actor=entry.actor,
        tenant=entry.tenant or _tenant(store, entry),
        action=entry.action,
        target_kind=entry.target_kind,
        target=entry.target,
        reason=entry.reason,
        outcome=entry.outcome,
        details=text if len(text) <= MAX_DETAILS_BYTES else json.dumps({"omitted_bytes": len(text)}),
    )
    store.audit.append(view)


def keep_entry(store: Store, entry: AuditEntry) -> None:
    """Keep a row by itself; see `ActionStore.keep_entry`."""
    with store.statement() as now:
        keep(store, entry, now)


def page(store: Store, query: AuditQuery) -> AuditPage:
    """Give one page, newest first; see `ActionStore.audit`."""
    with store.statement():
        found = [row for row in reversed(store.audit) if _fits(row, query)]
        items = tuple(found[: query.limit])
        return AuditPage(items=items, next_before=items[-1].seq if len(found) > len(items) else None)


def _tenant(store: Store, entry: AuditEntry) -> str | None:
    """Give the tenant of the job that is acted on."""
    if entry.target_kind is not Target.JOB or entry.target is None:
        return None
    envelope = store.envelopes.get(JobId(UUID(entry.target)))
    return None if envelope is None else envelope.job.tenant


def _fits(row: AuditView, query: AuditQuery) -> bool:
    wanted = (query.actor, query.action, query.target_kind, query.target)
    given = (row.actor, row.action, row.target_kind, row.target)
    return (
        all(want in {None, has} for want, has in zip(wanted, given, strict=True))
        and (query.tenant is None or row.tenant == query.tenant or (row.tenant is None and row.target_kind in SHARED))
        and (query.since is None or row.at >= query.since)
        and (query.until is None or row.at < query.until)
        and (query.before is None or row.seq < query.before)
    )
