"""Bulk operations: one action on many jobs, which outlives the process that asked for it.

The jobs are fixed when the operation is made, by their ids or by a filter; each comes to one verdict. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NewType
from uuid import UUID

from .audit import Action
from .edit import DELETABLE, EDITABLE, RESCHEDULABLE
from .errors import CountChanged, NotFound, RequestInvalid
from .job import JobId
from .state import LIVE, RETRYABLE, State

BulkId = NewType("BulkId", UUID)

# A selection is one statement, which has to end within the time limit of every statement.
MOST_SELECTED = 500_000
# Of ids in one request, as of jobs in a batch of enqueues.
MOST_IDS = 1_000
# A filter is kept with its operation, and no store keeps an earlier time; nor is a job older.
OLDEST_TIME = datetime(1970, 1, 1, tzinfo=UTC)
# How far a filter without times looks back.
LOOKED_BACK = timedelta(days=7)
# How long an ended operation is kept, with the verdict on each of its jobs.
BULK_KEPT = timedelta(days=30)
# How many failures are shown with an operation.
SAMPLED = 10


class BulkAction(StrEnum):
    """What an operation does to each of its jobs; the values are the words of the HTTP API."""

    CANCEL = "cancel"
    RETRY = "retry"
    RELEASE = "release"
    DELETE = "delete"
    RUN_NOW = "run_now"
    RESCHEDULE = "reschedule"
    SET_PRIORITY = "set_priority"


class BulkState(StrEnum):
    """How far an operation is."""

    RUNNING = "running"
    DONE = "done"
    ABORTED = "aborted"


class BulkVerdict(StrEnum):
    """What became of one job: done, not hit since it no longer fits the filter, or refused; `code` says why."""

    DONE = "done"
    CHANGED = "changed"
    FAILED = "failed"


# The states of jobs that an action applies to.
ACTS_ON = {
    BulkAction.CANCEL: LIVE,
    BulkAction.RETRY: RETRYABLE,
    BulkAction.RELEASE: frozenset({State.HELD}),
    BulkAction.DELETE: DELETABLE,
    BulkAction.RUN_NOW: frozenset({State.DELAYED, State.SUSPENDED}),  # of suspended runs, those that sleep
    BulkAction.RESCHEDULE: RESCHEDULABLE,
    BulkAction.SET_PRIORITY: EDITABLE,
}


# The word of the audit for what is done to each job.
AUDITED_AS = {
    BulkAction.CANCEL: Action.JOB_CANCEL,
    BulkAction.RETRY: Action.JOB_RETRY,
    BulkAction.RELEASE: Action.JOB_RELEASE,
    BulkAction.DELETE: Action.JOB_DELETE,
    BulkAction.RUN_NOW: Action.JOB_RUN_NOW,
    BulkAction.RESCHEDULE: Action.JOB_UPDATE,
    BulkAction.SET_PRIORITY: Action.JOB_UPDATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """One kind of dead letters, as they are grouped: why they stopped, and the last error's type and code, if any."""

    reason: str
    type: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs; an empty field fits every job.

    Times are those of the enqueue: `created_after` is still in, `created_before` is out. `error` fits dead jobs alone,
    and all of them, however old.
    """

    states: frozenset[State] = frozenset()
    name: str | None = None
    queue: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    error: ErrorKind | None = None

    @property
    def has_times(self) -> bool:
        """Say whether it says itself how far it looks back."""
        return self.error is not None or self.created_after is not None or self.created_before is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBulk:
    """An operation to make. Its id is minted before, so that one whose reply was lost is made once.

    Either `ids` or `jobs`; the states of `jobs` are some that the action applies to. `tenant` bounds the jobs, None
    stands for every tenant. `expected_count` is how many jobs the caller has seen to fit. `priority` and `run_at` are
    the new ones of the actions that set them.
    """

    id: BulkId
    action: BulkAction
    by: str
    ids: tuple[JobId, ...] | None = None
    jobs: JobFilter | None = None
    tenant: str | None = None
    reason: str | None = None
    expected_count: int | None = None
    priority: int | None = None
    run_at: datetime | None = None

    @property
    def states(self) -> frozenset[State]:
        """Give the states a job must be in to be hit."""
        return (self.jobs.states if self.jobs is not None else None) or ACTS_ON[self.action]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkView:
    """An operation as it stands. `selected` counts its jobs; each is in one of the other counts once it is decided."""

    id: BulkId
    action: BulkAction
    state: BulkState
    by: str
    tenant: str | None
    reason: str | None
    by_ids: bool
    jobs: JobFilter
    created_at: datetime
    selected: int
    done: int = 0
    changed: int = 0
    failed: int = 0
    priority: int | None = None
    run_at: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None

    @property
    def left(self) -> int:
        """Count the jobs that are not decided yet; in an aborted operation they never are."""
        return self.selected - self.done - self.changed - self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkItem:
    """One job of an operation. Without a verdict it is still to come; `detail` is what the action found or met."""

    job_id: JobId
    verdict: BulkVerdict | None = None
    code: str | None = None
    detail: str | None = None
    decided_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkStep:
    """What one batch of an operation did, and the operation after it."""

    view: BulkView
    done: int = 0
    changed: int = 0
    failed: int = 0

    @property
    def has_decided(self) -> bool:
        """Say whether any job came to its verdict; jobs that somebody else moves at the moment are left for later."""
        return bool(self.done or self.changed or self.failed)


def check_selected(bulk: NewBulk, found: int) -> None:
    """Refuse an operation over another number of jobs than was expected, or over more than one statement selects.

    Raises:
        CountChanged: another number fits.
        RequestInvalid: too many fit.
    """
    expected = bulk.expected_count
    if expected is not None and expected != found:
        known = f"{found:,}" if found <= MOST_SELECTED else f"more than {MOST_SELECTED:,}"
        raise CountChanged(
            f"{expected:,} jobs were expected and {known} fit now; nothing was changed",
            fix="count again with a dry run, and send that number as expected_count if it is what you want",
            expected=expected,
            count=found,
        )
    if found > MOST_SELECTED:
        raise RequestInvalid(
            f"more than {MOST_SELECTED:,} jobs fit the filter",
            fix="narrow the filter by created_before, name or queue, and make several operations",
            pointer="/selector/filter",
        )


def unknown_operation(bulk_id: object) -> NotFound:
    """Give the answer for an operation that is absent or another tenant's; the two cannot be told apart."""
    return NotFound(
        f"there is no bulk operation {str(bulk_id)[:64]}",
        fix=f"list them; an operation is kept for {BULK_KEPT.days} days after its end",
    )
