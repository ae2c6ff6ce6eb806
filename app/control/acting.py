"""Who acts, made into the row of the audit that a verb of the store takes.

Called by every control whose verbs change something. Without somebody who acts no row is made: an operation on many
jobs leaves one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from uuid_utils.compat import uuid7

from ..domain.audit import Acting, Action, AuditEntry, Target
from ..domain.job import JobId
from ..domain.request_claim import Effect


def entry_of(
    by: Acting | None,
    action: Action,
    target_kind: Target,
    target: str | None,
    *,
    tenant: str | None = None,
    details: Mapping[str, object] | None = None,
) -> AuditEntry | None:
    """Give the row of an action, its id minted now; `details` that are None are left out."""
    if by is None:
        return None
    return AuditEntry(
        id=uuid7(),
        actor=by.actor,
        action=action,
        target_kind=target_kind,
        target=target,
        tenant=tenant,
        reason=by.reason,
        request=by.request,
        details={name: value for name, value in (details or {}).items() if value is not None},
    )


def done_before(by: Acting | None) -> Effect | None:
    """Give what an earlier try of the same request has done: then only its answer is to be given again."""
    return None if by is None else by.effect


def on_job(by: Acting | None, action: Action, job_id: JobId, **details: object) -> AuditEntry | None:
    """Give the row of an action on a job, whose tenant the store knows."""
    return entry_of(by, action, Target.JOB, str(job_id), details=details)
