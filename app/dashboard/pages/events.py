"""Events: which were emitted, how many waits each has ended, and sending one."""

from __future__ import annotations

from starlette.responses import Response

from ...domain.event import EventQuery
from ..visit import PAYLOADS, WRITE, Visit

_SHOWN = 50


async def page(visit: Visit) -> Response:
    """Give stored events, newest first."""
    query = EventQuery(
        tenant=visit.tenant,
        name=visit.asked("name") or None,
        key=visit.asked("key") or None,
        before=visit.asked_number("before"),
        limit=_SHOWN,
    )
    found = await visit.services.events.list(query)
    return visit.page(
        "events.html",
        title="Events",
        at="events",
        events=found,
        older=found[-1].seq if len(found) == _SHOWN else None,
        name=visit.asked("name"),
        key=visit.asked("key"),
        may_write=visit.may(WRITE),
        sees_payload=visit.may(PAYLOADS),
    )


async def emit(visit: Visit) -> Response:
    """Emit an event."""
    form = await visit.form()
    emitted = await visit.services.events.emit(
        form.one("name"),
        form.one("key"),
        form.one("payload") or "null",
        tenant=visit.tenant,
        by=visit.seen.visitor.name,
    )
    return visit.go("/events", said=f"Sent: it ended {emitted.matched} waits")
