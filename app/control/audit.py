"""The audit as people see it: who did what to what, and why, newest first.

Authority is the caller's business: a tenant sees its own rows and those that belong to nobody alone, without what they
say of another one. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

import json
from dataclasses import replace

from ..domain.audit import Action, AuditPage, AuditQuery, AuditView
from ..drivers.protocol import JobDriver
from .render import Document, raw


class AuditControl:
    """Reads the audit. Its rows are kept by the verbs they speak of."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def list(self, query: AuditQuery) -> AuditPage:
        """Give one page, newest first; it may be short, and only one without a `next_before` is the last."""
        page = await self._driver.audit(query)
        return replace(page, items=tuple(_as_seen(row, query.tenant) for row in page.items))


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


def _as_seen(row: AuditView, tenant: str | None) -> AuditView:
    """Give a row as one tenant sees it: of a queue's weights only its own."""
    if tenant is None or row.action != Action.QUEUE_UPDATE:
        return row
    details = json.loads(row.details)
    if isinstance(details.get("weights"), dict):
        details["weights"] = {name: weight for name, weight in details["weights"].items() if name == tenant}
    return replace(row, details=json.dumps(details))
