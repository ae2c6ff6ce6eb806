"""Entries of the audit made for tests, and the rows that are kept."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from app.domain.audit import Action, AuditEntry, AuditQuery, AuditView, Target
from app.domain.job import JobId
from app.drivers.protocol import JobDriver


def an_entry(action: Action, target: object = None, **fields: Any) -> AuditEntry:
    """Give an entry about a job, unless `target_kind` says otherwise."""
    defaults: dict[str, Any] = {"id": uuid4(), "actor": "alice", "target_kind": Target.JOB, "reason": "a look"}
    return AuditEntry(action=action, target=None if target is None else str(target), **{**defaults, **fields})


async def rows_of(driver: JobDriver, job_id: JobId) -> list[AuditView]:
    """Give what the audit says of a job, the newest first."""
    return list((await driver.audit(AuditQuery(target=str(job_id)))).items)


async def outcomes(driver: JobDriver, job_id: JobId) -> list[tuple[str, str]]:
    """Give the actions on a job and what they came to, the newest first."""
    return [(row.action, row.outcome) for row in await rows_of(driver, job_id)]


def details_of(row: AuditView) -> dict[str, Any]:
    """Give a row's details."""
    found: dict[str, Any] = json.loads(row.details)
    return found
