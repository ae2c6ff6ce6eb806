"""What callers are answered about bulk operations, for the OpenAPI document and the tests; a part of `answers`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from ..domain.bulk import BulkAction, BulkState, BulkVerdict
from ..domain.state import State
from .answers import Answer


class BulkErrorKind(Answer):
    """One kind of dead letters."""

    reason: str
    type: str | None
    code: str | None


class BulkFilter(Answer):
    """A filter as it was applied."""

    state: list[State]
    name: str | None
    queue: str | None
    tenant: str | None
    created_after: datetime | None
    created_before: datetime | None
    error: BulkErrorKind | None


class BulkSelected(Answer):
    """Which jobs an operation is over."""

    ids: int | None = Field(description="How many ids it was made over; null for a filter.")
    filter: BulkFilter | None


class BulkCount(Answer):
    """The answer to a dry run."""

    dry_run: Literal[True]
    action: BulkAction
    selector: BulkSelected
    matched: int = Field(description="How many jobs the action would be done to now.")
    capped: bool = Field(description="Whether there are more than that: more than one operation takes.")
    notice: str | None = Field(description="What the filter leaves out without being told to.")


class BulkError(Answer):
    """A job that the action was not done to."""

    job_id: UUID
    code: str
    message: str


class BulkLinks(Answer):
    """Where the rest is."""

    self: str
    items: str
    abort: str


class BulkOperation(Answer):
    """A bulk operation as it stands."""

    id: UUID
    action: BulkAction
    state: BulkState
    selector: BulkSelected
    priority: int | None
    run_at: datetime | None
    reason: str | None
    created_by: str
    created_at: datetime
    ended_at: datetime | None
    ended_by: str | None = Field(description="Who aborted it.")
    matched: int = Field(description="How many jobs it is over, fixed when it was made.")
    done: int
    changed: int = Field(description="Jobs that did not fit any more when their turn came, and were left alone.")
    failed: int = Field(description="Jobs that the action could not be done to.")
    left: int = Field(description="Jobs whose turn is still to come.")
    errors_sample: list[BulkError] = Field(description="The first that failed; empty in lists.")
    notice: str | None = Field(default=None, description="In the answer to who made it, as after a dry run.")
    links: BulkLinks


class BulkOperationList(Answer):
    """One page of operations, newest first."""

    items: list[BulkOperation]
    next_cursor: str | None


class BulkJob(Answer):
    """What became of one job."""

    job_id: UUID
    verdict: BulkVerdict | None = Field(description="Null while its turn is still to come.")
    code: str | None = Field(description="Why the action was not done to it.")
    detail: str | None = Field(description="What the action found, or the state or the job that stood in its way.")
    message: str | None
    decided_at: datetime | None


class BulkJobList(Answer):
    """One page of an operation's jobs, by their ids."""

    items: list[BulkJob]
    next_cursor: str | None
