"""What callers are answered about limits, for the OpenAPI document and the tests; a part of `answers`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from .answers import Answer


class Slot(Answer):
    """One slot of a limit that is held."""

    name: str = Field(description="The job type.")
    limit: str = Field(description="The limit's name within the job type.")
    key: str = Field(description="What is counted; empty when all jobs of the type are counted as one.")
    job_id: UUID
    claim_no: int
    worker_id: str
    taken_at: datetime
    is_open: bool = Field(description="False once the attempt is closed: a body runs on, or its end is not told yet.")
    tenant: str


class SlotList(Answer):
    """A page of held slots."""

    items: list[Slot]
    next_cursor: str | None


class Released(Answer):
    """Slots that were taken back."""

    items: list[Slot]


class LimitInForce(Answer):
    """A limit or rate of a job type."""

    name: str = Field(description="The job type.")
    limit: str = Field(description="The limit's name; `rate` is the type's rate.")
    n: int | None = Field(description="How many there may be now; null when nothing is held back any more.")
    declared: int | None = Field(description="What the newest published code says.")
    per_ms: int | None = Field(description="For a rate: so many in this time.")
    set_by: str | None = Field(description="Who put another number in the declared one's place.")
    held: int = Field(description="Slots that are held, of all keys.")
    waiting: int = Field(description="Jobs in the gate that are under it.")


class LimitList(Answer):
    """The limits in force."""

    items: list[LimitInForce]
