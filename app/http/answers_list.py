"""The answers of `GET /v1/jobs` and `GET /v1/jobs/{id}`."""

from __future__ import annotations

from pydantic import Field

from .answers import Answer, AttemptError, AttemptList, Count, Job, JobError
from .run_answers import StepList


class ListedJob(Job):
    """A job of a list. Payload and result are there when they are asked for, the traceback as well."""

    error: AttemptError | JobError | None = Field(description="The last attempt's; cleared by done.")


class JobInFull(ListedJob):
    """A job as it stands. Payload and result are left out for keys without the scope `payload:read`."""

    attempts: AttemptList | None = Field(default=None, description="With `include=attempts`.")
    steps: StepList | None = Field(default=None, description="With `include=steps`: the first page.")


class JobList(Answer):
    """One page of jobs, in the order that was asked for; newest first otherwise."""

    items: list[ListedJob]
    next_cursor: str | None = Field(description="The jobs behind; a page may be short before the last.")
    prev_cursor: str | None = Field(description="The jobs before; null on a page that was asked for without a cursor.")
    count: Count | None = Field(description="What fits, with `count=true`.")
