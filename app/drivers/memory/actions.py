"""The memory driver's verbs of operators, over the same `Store`."""

from __future__ import annotations

from ...domain.audit import AuditEntry, AuditPage, AuditQuery
from ...domain.edit import JobPatch, RunNowVerdict
from ...domain.job import Enqueued, JobId, NewJob
from ...domain.outcome import CancelVerdict
from ...domain.step import RetryMode
from ..actions import ActionStore
from . import audit as rows
from . import cancel, edit, retry
from .store import Store


class MemoryActions:
    """A store that operators act on, whose rows live in this process. What each verb does is said by the protocol."""

    _store: Store

    async def cancel(
        self, job_id: JobId, *, reason: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> CancelVerdict:
        """End a job for good."""
        return cancel.cancel(self._store, job_id, reason=reason, tenant=tenant, audit=audit)

    async def retry(
        self,
        job_id: JobId,
        *,
        mode: RetryMode = RetryMode.RESUME,
        from_step: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Make a dead, cancelled or held job ready again."""
        retry.retry(self._store, job_id, mode=mode, from_step=from_step, tenant=tenant, audit=audit)

    async def run_now(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> RunNowVerdict:
        """Let a job start before its time."""
        return edit.run_now(self._store, job_id, tenant=tenant, audit=audit)

    async def patch(
        self,
        job_id: JobId,
        patch: JobPatch,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Change fields of a job that waits."""
        edit.patch(self._store, job_id, patch, versions=versions, tenant=tenant, audit=audit)

    async def delete(
        self,
        job_id: JobId,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Delete a job that has ended or is held."""
        edit.delete(self._store, job_id, versions=versions, tenant=tenant, audit=audit)

    async def place(self, job: NewJob, *, audit: AuditEntry) -> Enqueued:
        """Store a job with the row of the audit."""
        return edit.place(self._store, job, audit=audit)

    async def keep_entry(self, entry: AuditEntry) -> None:
        """Keep a row of the audit by itself."""
        rows.keep_entry(self._store, entry)

    async def audit(self, query: AuditQuery) -> AuditPage:
        """Give one page of the audit."""
        return rows.page(self._store, query)


_: type[ActionStore] = MemoryActions
