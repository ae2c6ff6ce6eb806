"""The audit: who did what to what, and why."""

from __future__ import annotations

from starlette.responses import Response

from ...domain.audit import Action, AuditQuery, Target
from ..visit import Visit

_SHOWN = 50
_KINDS = frozenset(kind.value for kind in Target)


async def page(visit: Visit) -> Response:
    """Give one page, newest first."""
    action, kind = visit.asked("action"), visit.asked("kind")
    found = await visit.services.audit.list(
        AuditQuery(
            actor=visit.asked("actor") or None,
            action=action if action in {each.value for each in Action} else None,
            target_kind=kind if kind in _KINDS else None,
            target=visit.asked("target") or None,
            tenant=visit.tenant,
            before=visit.asked_number("before"),
            limit=_SHOWN,
        ),
        seen_by=visit.tenant,
    )
    return visit.page(
        "audit.html",
        title="Audit",
        at="audit",
        rows=found.items,
        older=found.next_before,
        actions=sorted(each.value for each in Action),
        action=action,
        actor=visit.asked("actor"),
        target=visit.asked("target"),
    )
