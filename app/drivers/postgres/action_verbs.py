"""The verbs of operators, a part of the driver: each is a function in the module of its name.

Apart because no worker calls them. Holds nothing.
"""

from __future__ import annotations

from ...domain.audit import AuditEntry, AuditPage, AuditQuery
from ...domain.edit import JobPatch, RunNowVerdict
from ...domain.job import Enqueued, JobId, NewJob
from ...domain.outcome import CancelVerdict
from ...domain.step import RetryMode
from ..actions import ActionStore
from . import audit as rows
from . import cancel, delete, place, retry, run_now
from . import patch as patches
from .database import Database
from .look import look
from .tenant_wall import admit


class ActionVerbs:
    """A store that operators act on in PostgreSQL. What each verb promises, the protocol says."""

    _db: Database

    async def cancel(
        self, job_id: JobId, *, reason: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> CancelVerdict:
        """End a job for good."""
        await admit(self._db, job_id, tenant)
        return await cancel.cancel(self._db, job_id, reason=reason, tenant=tenant, audit=audit)

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
        await admit(self._db, job_id, tenant)
        await retry.retry(self._db, job_id, mode=mode, from_step=from_step, tenant=tenant, audit=audit)

    async def run_now(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> RunNowVerdict:
        """Let a job start before its time."""
        await admit(self._db, job_id, tenant)
        return await run_now.run_now(self._db, job_id, tenant=tenant, audit=audit)

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
        await admit(self._db, job_id, tenant)
        await patches.patch(self._db, job_id, patch, versions=versions, tenant=tenant, audit=audit)

    async def delete(
        self,
        job_id: JobId,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Delete a job that has ended or is held."""
        await admit(self._db, job_id, tenant)
        await delete.delete(self._db, job_id, versions=versions, tenant=tenant, audit=audit)

    async def place(self, job: NewJob, *, audit: AuditEntry) -> Enqueued:
        """Store a job with the row of the audit."""
        return await place.place(self._db, job, audit=audit)

    async def keep_entry(self, entry: AuditEntry) -> None:
        """Keep a row of the audit by itself."""
        await rows.keep_entry(self._db, entry)

    async def audit(self, query: AuditQuery) -> AuditPage:
        """Give one page of the audit."""
        return await look(self._db, lambda db: rows.page(db, query))


_: type[ActionStore] = ActionVerbs
