"""Actions on one job, and what its run has done. `reason` is kept in the audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from ..answers.runs import Attempt, Explained, Line, Step, Timeline, Waits
from ..answers.shown import CancelledJob, Job, JobSummary, RunNowJob
from ..call import Answer, Call, Page, get, get_items, get_pages, given, path, post
from ..wire import JobLike, id_of, instant, to_json

ANY_VERSION = "*"


def cancel_job(job: JobLike, *, reason: str | None = None) -> Call[CancelledJob]:
    """Cancel a job, for good when this returns; `verdict` says what was found. A second cancel changes nothing."""
    return post(_of(job, "cancel"), CancelledJob, reason=reason)


def retry_job(
    job: JobLike,
    *,
    mode: Literal["resume", "fresh"] = "resume",
    from_step: str | None = None,
    reason: str | None = None,
) -> Call[Job]:
    """Run a dead, cancelled or held job again: on from its steps, from one of them, or afresh.

    Raises:
        ProblemError: `JOB_STATE_CONFLICT`; `JOB_DUPLICATE`: another live job has its idempotency key.
    """
    return post(_of(job, "retry"), Job, mode=mode, from_step=from_step, reason=reason)


def fork_job(job: JobLike, *, from_step: str | None = None, reason: str | None = None) -> Call[Job]:
    """Make a new job with the steps recorded before one of them, or with all."""
    return post(_of(job, "fork"), Job, from_step=from_step, reason=reason)


def duplicate_job(job: JobLike, *, input_patch: object = None, reason: str | None = None) -> Call[Job]:
    """Make a new job with the same payload, or with a JSON merge patch (RFC 7396) of it; its parent is the old one."""
    patch = None if input_patch is None else to_json(input_patch)
    return post(_of(job, "duplicate"), Job, input_patch=patch, reason=reason)


def run_job_now(job: JobLike, *, reason: str | None = None) -> Call[RunNowJob]:
    """Make a job that waits for its time ready now."""
    return post(_of(job, "run-now"), RunNowJob, reason=reason)


def release_job(job: JobLike, *, reason: str | None = None) -> Call[Job]:
    """Let a held job go on with the code there is now."""
    return post(_of(job, "release"), Job, reason=reason)


def reveal_job(job: JobLike, *, reason: str | None = None) -> Call[Job]:
    """Give a job with what its type keeps back elsewhere; that it was seen is in the audit."""
    return post(_of(job, "reveal"), Job, reason=reason)


def update_job(
    job: JobLike,
    *,
    version: str | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    tags: Sequence[str] | None = None,
    max_attempts: int | None = None,
    reason: str | None = None,
) -> Call[Job]:
    """Change a job that does not run, if it still is as it was seen.

    `version` is a job's, and that of the `job` itself when it was read before; `"*"` is whatever it is now.

    Raises:
        ProblemError: `PRECONDITION_FAILED`: it has moved since. `PRECONDITION_REQUIRED`: only an id was given, and no
            version. `JOB_STATE_CONFLICT`.
    """
    fields = given(
        priority=priority,
        run_at=instant(run_at),
        tags=None if tags is None else list(tags),
        max_attempts=max_attempts,
        reason=reason,
    )
    where = path("v1", "jobs", id_of(job))
    return Call(method="PATCH", path=where, read=_job, body=fields, headers=_if_match(job, version))


def delete_job(job: JobLike, *, version: str | None = None, reason: str | None = None) -> Call[None]:
    """Delete a job that has ended or is held; a `version` as in `update`, but not needed."""
    headers = {} if version is None else _if_match(job, version)
    where = path("v1", "jobs", id_of(job))
    return Call(method="DELETE", path=where, read=_nothing, query=given(reason=reason), headers=headers)


def list_attempts(job: JobLike) -> Call[tuple[Attempt, ...]]:
    """Give a job's ended attempts in order; of very many the first 20 and the last 80."""
    return get_items(_of(job, "attempts"), Attempt)


def list_steps(job: JobLike, *, limit: int | None = None) -> Call[Page[Step]]:
    """Give the recorded steps of a job's run in order."""
    return get_pages(_of(job, "steps"), Step, limit=limit)


def get_waits(job: JobLike) -> Call[Waits]:
    """Give everything a job's run waits for, and the jobs it has called."""
    return get(_of(job, "steps"), Waits, limit=1)


def list_logs(job: JobLike, *, limit: int | None = None) -> Call[Page[Line]]:
    """Give the lines a job's run kept, oldest first."""
    return get_pages(_of(job, "logs"), Line, limit=limit)


def get_timeline(job: JobLike) -> Call[Timeline]:
    """Give a job's life as spans: waits, attempts, steps."""
    return get(_of(job, "timeline"), Timeline)


def explain_job(job: JobLike) -> Call[Explained]:
    """Say why a job is not running, and what would change it."""
    return get(_of(job, "explain"), Explained)


def _of(job: JobLike, what: str) -> str:
    return path("v1", "jobs", id_of(job), what)


def _job(answer: Answer) -> Job:
    return Job.model_validate_json(answer.body)


def _nothing(answer: Answer) -> None:  # noqa: ARG001 - there is nothing in it
    return None


def _if_match(job: JobLike, version: str | None) -> dict[str, str]:
    seen = job.version if version is None and isinstance(job, JobSummary) else version
    if seen is None:
        return {}
    return {"If-Match": ANY_VERSION if seen == ANY_VERSION else f'"{seen}"'}
