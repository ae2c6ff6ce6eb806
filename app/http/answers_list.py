"""The answer of `GET /v1/jobs`."""

from __future__ import annotations

from pydantic import Field

from .answers import Answer, Count, JobSummary


class JobList(Answer):
    """One page of jobs, newest first."""

    items: list[JobSummary]
    next_cursor: str | None = Field(description="Older jobs; a page may be short before the last.")
    prev_cursor: str | None = Field(description="Newer jobs; null on a page that was asked for without a cursor.")
    count: Count | None = Field(description="What fits, with `count=true`.")
