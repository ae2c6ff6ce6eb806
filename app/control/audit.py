"""The audit as people see it: who did what to what, and why, newest first.

Authority is the caller's business: a tenant sees its own rows and those that belong to nobody alone, without what they
say of another one. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

import json
from dataclasses import replace

from ..domain.audit import Action, AuditPage, AuditQuery, AuditView
from ..drivers.protocol import JobDriver
from .actors import OPERATOR, Actors
from .render import Document, raw

_NOTHING = AuditPage(items=(), next_before=None)


class AuditControl:
    """Reads the audit. Its rows are kept by the verbs they speak of. `actors` knows whose names are whose."""

    def __init__(self, driver: JobDriver, *, actors: Actors) -> None:
        self._driver = driver
        self._actors = actors

    async def list(self, query: AuditQuery, *, seen_by: str | None) -> AuditPage:
        """Give one page, newest first; it may be short, and only one without a `next_before` is the last.

        `seen_by` is the tenant of who looks, None for who acts for all of them. A tenant is told the names of its own
        keys, and finds rows by those and by `operator`, which stands for everybody else.
        """
        if seen_by is None:
            return await self._driver.audit(query)
        asked = query.actor
        if asked == OPERATOR:
            query = replace(query, actor=None)
        elif asked is not None and not await self._actors.own(seen_by, [asked]):
            return _NOTHING
        page = await self._driver.audit(query)
        own = await self._actors.own(seen_by, [row.actor for row in page.items])
        shown = [_as_seen(row, seen_by, own) for row in page.items]
        return replace(page, items=tuple(row for row in shown if asked in {None, row.actor}))

    async def newest(self, query: AuditQuery) -> tuple[AuditView, ...]:
        """Give as many rows as the query's limit, newest first, for who acts for all tenants: over short pages."""
        found: list[AuditView] = []
        while True:
            page = await self.list(replace(query, limit=query.limit - len(found)), seen_by=None)
            found += page.items
            if page.next_before is None or len(found) >= query.limit:
                return tuple(found)
            query = replace(query, before=page.next_before)


def audit_document(row: AuditView) -> Document:
    """Give the representation of a row."""
    return {
        "id": row.id,
        "at": row.at,
        "actor": row.actor,
        "action": row.action,
        "target": {"kind": row.target_kind, "id": row.target},
        "tenant": row.tenant,
        "reason": row.reason,
        "outcome": row.outcome,
        "details": raw(row.details),
    }


def _as_seen(row: AuditView, tenant: str, own: frozenset[str]) -> AuditView:
    """Give a row as one tenant sees it: of who acts only its own keys by name, of a queue's weights only its own."""
    row = row if row.actor in own else replace(row, actor=OPERATOR)
    if row.action != Action.QUEUE_UPDATE:
        return row
    details = json.loads(row.details)
    if isinstance(details.get("weights"), dict):
        details["weights"] = {name: weight for name, weight in details["weights"].items() if name == tenant}
    return replace(row, details=json.dumps(details))
