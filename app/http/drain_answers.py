"""What callers are answered about drains, field by field, for the OpenAPI document and the tests.

Rendered by `control.drain`, like all answers never through these models. A test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field, RootModel

from .answers import Answer, Worker

Phase = Literal["accept", "inflight", "close"]


class HeldRun(Answer):
    """A run that has not ended."""

    job_id: UUID
    job_type: str
    step: str | None
    told_ms: int | None = Field(description="How long ago it was told to stop; null while the process stays.")
    acknowledged: bool = Field(description="Whether it has read that, or has ended; never before it was told.")


class Drain(Answer):
    """How far one process is with leaving."""

    state: Literal["running", "draining", "stopped"]
    role: str = Field(description="The roles of the process, joined by `+`.")
    phase: Phase | None = Field(description="Null while the process stays.")
    reason: str | None = Field(description="What began the drain.")
    signal: str | None = Field(description="The signal, when it was one.")
    started_at: datetime | None
    deadline_at: datetime | None = Field(description="When the process is gone.")
    remaining_ms: int | None
    in_flight_count: int
    in_flight: list[HeldRun] = Field(description="The runs in hand that the caller may see, 200 at most.")
    completed: int = Field(description="Runs that were told to stop and came to their end instead.")
    interrupted: int = Field(description="Runs that stopped because they were told, counted in no budget.")
    abandoned: int = Field(description="Runs that did not end; whoever takes them over reports them interrupted.")
    other: int = Field(description="Runs that failed, were suspended or cancelled, or lost their claim meanwhile.")
    roles: dict[str, str] = Field(description="How far each role is.")


class FleetDrain(Answer):
    """The workers behind the store with their drains, as they show them there."""

    scope: Literal["fleet"]
    live: int = Field(description="Workers that have not left.")
    draining: int = Field(description="How many of these are leaving.")
    phases: dict[Phase, int]
    workers: list[Worker] = Field(description="Live workers and those that left in the last hour, newest first.")


class DrainView(RootModel[Drain | FleetDrain]):
    """One process's drain, or the fleet's."""


class Fates(Answer):
    """What became of runs that a drain told to stop, and how soon those that were cut were claimed again."""

    completed: int
    interrupted: int
    abandoned: int
    other: int
    never_acknowledged: int = Field(description="Runs that were cut without ever having read their signal.")
    claimed_again: int = Field(description="Runs that were cut and have been claimed since.")
    claimed_again_ms_median: int | None
    claimed_again_ms_max: int | None


class JobTypeFates(Fates):
    """The same of one job type."""

    job_type: str


class CutRun(Answer):
    """A run that was cut."""

    job_id: UUID
    job_type: str
    fate: Literal["interrupted", "abandoned"]
    acknowledged: bool
    claimed_again_ms: int | None = Field(description="From its end there to its next claim; null while there is none.")


class Deploy(Fates):
    """A drained worker's report."""

    worker_id: str
    host: str
    code_version: str
    reason: str
    started_at: datetime
    ended_at: datetime
    job_types: list[JobTypeFates]
    cut: list[CutRun] = Field(description="The runs that were cut, 200 at most.")


class Ignorant(Answer):
    """A job type whose handlers never read their signal."""

    job_type: str
    count: int


class DeployList(Answer):
    """Reports of drained workers, newest first."""

    items: list[Deploy]
    never_acknowledged: list[Ignorant] = Field(description="Of the items at hand, most first.")
    next_before: str | None = Field(description="`before` of the page that follows.")
