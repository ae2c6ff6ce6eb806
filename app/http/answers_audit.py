"""What callers are answered by actions on a job, and about the audit; a part of `answers`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from ..domain.edit import RunNowVerdict
from .answers import Answer, Job


class RunNowJob(Job):
    """A job after a run-now, and what that found."""

    verdict: RunNowVerdict


class AuditTarget(Answer):
    """What was acted on."""

    kind: str
    id: str | None = Field(description="An id or a name, or the words of a filter.")


class AuditRow(Answer):
    """One action: who did what to what, and why."""

    id: UUID
    at: datetime
    actor: str = Field(description="`operator` where it is told to a tenant that it is not of.")
    action: str
    target: AuditTarget
    tenant: str | None = Field(description="Null for what belongs to nobody alone: queues, workers, schedules.")
    reason: str | None
    outcome: str = Field(description="`done`, `unchanged`, or what the action found.")
    details: dict[str, Any]


class AuditList(Answer):
    """One page of the audit."""

    items: list[AuditRow]
    next_cursor: str | None = Field(description="Goes on from here; a page may be short before the last.")
