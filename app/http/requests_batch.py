"""What callers send to `POST /v1/job-batches`, and what they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from .answers import Answer, Links, Problem
from .requests import EnqueueBody, Strict

MOST_JOBS = 1_000


class BatchBody(Strict):
    """The body of `POST /v1/job-batches`."""

    jobs: list[EnqueueBody] = Field(min_length=1, max_length=MOST_JOBS, description="What `POST /v1/jobs` takes.")
    atomic: bool = Field(default=True, description="All or none; false: what is refused leaves the others stored.")


class BatchEnvelope(Strict):
    """The same, its jobs not looked at yet."""

    jobs: list[Any] = Field(min_length=1, max_length=MOST_JOBS)
    atomic: bool = True


class BatchJob(Answer):
    """A job of a batch that is stored; `GET` its `links.self` for all of it."""

    id: UUID
    run_id: UUID
    name: str
    deduped: bool
    key_expires_at: datetime | None
    links: Links


class BatchItem(Answer):
    """What became of one job: `201` new, `200` the live job that holds its key, else its problem."""

    index: int
    status: int
    job: BatchJob | None
    problem: Problem | None


class Batch(Answer):
    """What became of each job, in order."""

    items: list[BatchItem]
