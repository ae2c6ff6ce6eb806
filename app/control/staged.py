"""Where a staged id leads while there is no job of its own under it: the one place that decides it for every verb.

Such an id was given out at staging. It waits for a relay, was refused, or its key led to another job. Asked by the
verbs on jobs when they found none, so that a job that is there costs nothing more.
"""

from __future__ import annotations

from typing import Any

from ..domain.errors import JobNotFound, error_classes
from ..domain.job import JobId
from ..domain.outbox import Refusal
from ..drivers.outbox import OutboxStore, outbox_of
from ..drivers.protocol import JobDriver
from .render import Document


class StagedIds:
    """Says why there is no job under an id. `outbox` is where callers stage; what came of it is asked beside `jobs`."""

    def __init__(self, outbox: OutboxStore[Any] | None, *, jobs: JobDriver) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._beside_jobs = outbox_of(jobs)

    async def explain(self, job_id: JobId, absent: JobNotFound, *, tenant: str | None) -> None:
        """Return only when the id may have become a job since it was looked for: then look once more.

        Raises:
            JobNotFound: its key led to another job (detail `existing_id`), it waits to be published, it was refused
                (detail `error`), or it leads nowhere that this tenant may look: `absent` itself.
        """
        # In the order in which a row becomes a job: one that is gone from the outbox by now has left its source.
        row = None if self._outbox is None else await self._outbox.find(job_id, tenant=tenant)
        found = None if self._beside_jobs is None else await self._beside_jobs.forwarded(job_id)
        if found == job_id:
            return
        if found is not None and await self._jobs.describe(found, tenant=tenant) is not None:
            raise _folded(job_id, found) from absent
        if row is None:
            raise absent
        raise (_waiting(job_id) if row.refusal is None else _refused(job_id, row.refusal)) from absent


def _folded(job_id: JobId, found: JobId) -> JobNotFound:
    return JobNotFound(
        f"{job_id} was staged and is no job of its own: its key led to job {found}",
        fix=f"use {found}",
        existing_id=found,
    )


def _waiting(job_id: JobId) -> JobNotFound:
    return JobNotFound(
        f"job {job_id} is staged and not published yet",
        fix="ask again in a moment; GET /v1/outbox and `outlast outbox status` say how far the relays are",
    )


def _refused(job_id: JobId, refusal: Refusal) -> JobNotFound:
    replay = f"`outlast outbox replay {job_id}`"
    fix = f"mend what refused it, then run {replay}"
    if refusal.code is None:
        fix = f"if a second job does no harm, run {replay[:-1]} --may-double`"
    return JobNotFound(
        f"job {job_id} was staged and refused, and waits in quarantine: {refusal.code or 'too old'}: {refusal.message}",
        fix=fix,
        error=_error_document(refusal),
    )


def _error_document(refusal: Refusal) -> Document:
    known = None if refusal.code is None else error_classes().get(refusal.code)
    return {
        "type": "Quarantined" if known is None else known.__name__,
        "message": refusal.message,
        "code": refusal.code,
        "retryable": False,
    }
