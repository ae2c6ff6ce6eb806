"""Events: stored, and the waits they match ended in the same statement."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ...domain.event import Emitted, EventQuery, EventView, NewEvent
from ...domain.job import JobId
from .run_rows import WaitRow
from .store import Store
from .waking import end_wait


def emit(store: Store, event: NewEvent) -> Emitted:
    """Store an event and end the waits it matches; see `RunStore.emit`."""
    with store.statement() as now:
        return emit_at(store, now, event)


def emit_at(store: Store, now: datetime, event: NewEvent) -> Emitted:
    """Do it within a statement that began already."""
    before = store.runs.event(event.id)
    if before is not None:
        return Emitted(id=event.id, matched=before.matched, is_repeated=True)
    stored = EventView(
        id=event.id,
        seq=store.runs.next_event_seq(),
        tenant=event.tenant,
        name=event.name,
        key=event.key,
        payload=event.payload,
        emitted_at=now,
        emitted_by=event.emitted_by,
        matched=0,
    )
    matched = _matched(store, stored)
    store.runs.events.append(replace(stored, matched=len(matched)))
    for job_id, wait in matched.items():
        end_wait(store, job_id, wait, now, event=stored)
    return Emitted(id=event.id, matched=len(matched))


def events(store: Store, query: EventQuery) -> tuple[EventView, ...]:
    """Give stored events, newest first; see `RunStore.events`."""
    with store.statement():
        found = [event for event in reversed(store.runs.events) if _fits(event, query)]
        return tuple(found[: query.limit])


def _matched(store: Store, event: EventView) -> dict[JobId, WaitRow]:
    """Give of each run that waits for the event the wait that began first."""
    matched: dict[JobId, WaitRow] = {}
    for job_id, wait in store.runs.all_waits():
        if (wait.tenant, wait.event, wait.key) == (event.tenant, event.name, event.key):
            matched.setdefault(job_id, wait)
    return matched


def _fits(event: EventView, query: EventQuery) -> bool:
    return (
        query.tenant in {None, event.tenant}
        and query.name in {None, event.name}
        and query.key in {None, event.key}
        and (query.before is None or event.seq < query.before)
    )
