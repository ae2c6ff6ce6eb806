"""The facts that log events carry about jobs, attempts and errors; `telemetry` words the events.

Names, ids, codes and kinds only: the text of an error stays in the ledger.
"""

from __future__ import annotations

from ..domain.job import ClaimedJob
from ..domain.outcome import ErrorInfo
from ..domain.snapshot import Reaped
from ..domain.state import DeadReason


def of_job(job: ClaimedJob) -> dict[str, object]:
    """Name a claimed job, its attempt and its worker."""
    return {
        "job_id": str(job.token.job_id),
        "job": job.name,
        "queue": job.queue,
        "attempt": job.counters.attempt,
        "claim_no": job.counters.claim_no,
        "worker_id": int(job.token.worker_id),
    }


def lasted(seconds: float | None) -> dict[str, object]:
    """Say how long it took, where that is known."""
    return {} if seconds is None else {"duration_ms": round(seconds * 1000, 1)}


def of_taken(one: Reaped) -> dict[str, object]:
    """Name a claim that was taken over, and what it was booked as."""
    return {
        "job_id": str(one.job_id),
        "job": one.name,
        "queue": one.queue,
        "outcome": one.outcome.value,
        "attempt": one.attempt,
        "claim_no": one.claim_no,
        "of_worker": int(one.worker_id),
        "cause": one.cause,
        **lasted(one.lasted.total_seconds()),
        **({"is_dead": True, "reason": DeadReason.CRASHED_TOO_OFTEN.value} if one.is_dead else {"is_dead": False}),
    }


def kind_of(error: ErrorInfo | None) -> dict[str, object]:
    """Name an error by type and code; its text stays in the ledger, where `payload:read` guards it."""
    return {} if error is None else {"error": error.type, "code": error.code}


def code_of(error: BaseException) -> object:
    """Give an error's code, None for one that has none."""
    return getattr(error, "code", None)
