from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from app.control.acting import entry_of, on_job
from app.control.actions import checked
from app.domain.audit import Acting, Action, Target
from app.domain.edit import JobPatch
from app.domain.errors import RequestInvalid
from app.domain.job import JobId
from tests.support.drivers import new_id

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def now() -> datetime:
    return NOW


@pytest.mark.parametrize(
    ("patch", "pointer"),
    [
        (JobPatch(), ""),
        (JobPatch(priority=-1), "/priority"),
        (JobPatch(priority=10), "/priority"),
        (JobPatch(max_attempts=0), "/max_attempts"),
        (JobPatch(max_attempts=10**6), "/max_attempts"),
        (JobPatch(tags=("x",) * 21), "/tags"),
        (JobPatch(tags=("",)), "/tags"),
        (JobPatch(tags=("a\nb",)), "/tags"),
        (JobPatch(run_at=NOW.replace(tzinfo=None)), "/run_at"),
        (JobPatch(run_at=NOW - timedelta(days=2)), "/run_at"),
        (JobPatch(run_at=NOW + timedelta(days=6 * 366)), "/run_at"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_name(patch: JobPatch, pointer: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        checked(patch, now)
    assert refused.value.details["pointer"] == pointer


def test_what_fits_is_let_through_with_its_time_in_utc() -> None:
    late = (NOW + timedelta(hours=1)).astimezone(timezone(timedelta(hours=5)))
    patch = checked(JobPatch(priority=0, run_at=late, tags=(), max_attempts=1), now)
    assert patch.run_at is not None
    assert (patch.run_at, patch.run_at.tzinfo) == (late, UTC)
    assert patch.after() == {"priority": 0, "run_at": "2026-11-30T13:00:00+00:00", "tags": [], "max_attempts": 1}


def test_without_somebody_who_acts_there_is_no_row() -> None:
    assert entry_of(None, Action.QUEUE_PAUSE, Target.QUEUE, "mail") is None
    assert on_job(None, Action.JOB_RETRY, JobId(new_id())) is None


def test_a_row_says_who_why_and_what_is_known_and_every_one_is_its_own() -> None:
    job_id = JobId(new_id())
    by = Acting(actor="alice", reason="because")
    one, other = (on_job(by, Action.JOB_RETRY, job_id, mode="fresh", from_step=None) for _ in range(2))
    assert one is not None
    assert other is not None
    assert (one.actor, one.reason, one.target_kind, one.target) == ("alice", "because", Target.JOB, str(job_id))
    assert one.details == {"mode": "fresh"}
    assert one.id != other.id
