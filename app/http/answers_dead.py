"""What callers are answered about dead letters, for the OpenAPI document and the tests; a part of `answers`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from ..domain.snapshot import HOURS
from .answers import Answer


class DeadLetterGroup(Answer):
    """Dead letters of one job type, reason and error."""

    name: str
    reason: str
    error_type: str | None
    error_code: str | None
    count: int
    first_at: datetime
    last_at: datetime
    per_hour: list[int] = Field(
        min_length=HOURS,
        max_length=HOURS,
        description=f"How many of it died in each of the last {HOURS} hours; the hour until now is the last.",
    )
    message: str | None = Field(
        description="What the newest of it failed with: the beginning, with holes such as `‹n›`, `‹id›` and `‹url›` for"
        " numbers, ids, quoted parts, times and addresses; null where there was no error."
    )


class DeadLetterList(Answer):
    """Every group, most dead letters first."""

    items: list[DeadLetterGroup]


class DeadLetterPurge(Answer):
    """What became of old dead letters."""

    dry_run: bool
    count: int = Field(description="So many were deleted by this request, or would be.")
    is_complete: bool = Field(description="False: the request took long enough; send it again with `after`.")
    next_after: UUID | None
