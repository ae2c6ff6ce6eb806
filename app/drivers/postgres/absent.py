"""What is said of a job that is not there, or not for this caller. Used by every verb on a job by its id."""

from __future__ import annotations

from ...domain.errors import JobNotFound
from ...domain.job import JobId


def not_found(job_id: JobId) -> JobNotFound:
    """Give the answer for an id that is absent or another tenant's; the two cannot be told apart."""
    return JobNotFound(
        f"there is no job {job_id}", fix="check the id and the tenant; finished jobs are purged after their retention"
    )
