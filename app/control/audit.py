"""The audit as people see it: who did what to what, and why, newest first.

Authority is the caller's business: a tenant sees its own rows and those that belong to nobody alone. Called by the HTTP
routes and the command line.
"""

from __future__ import annotations

from ..domain.audit import AuditPage, AuditQuery, AuditView
from ..drivers.protocol import JobDriver
from .render import Document, raw


class AuditControl:
    """Reads the audit. Its rows are kept by the verbs they speak of."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def list(self, query: AuditQuery) -> AuditPage:
        """Give one page, newest first; it may be short, and only one without a `next_before` is the last."""
        return await self._driver.audit(query)


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
