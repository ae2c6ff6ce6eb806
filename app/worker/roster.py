"""The runs in this worker's hands: what it holds, what of it still has a claim, and what is told to whom.

The worker's loop adds and removes; the heartbeat thread reads what to renew and tells runs whose claim is gone.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

from ..domain.job import ClaimedJob, ClaimToken
from ..domain.outcome import Outcome, SettleAnswer
from ..domain.snapshot import Revocation
from ..domain.verdict import Reason
from ..jobs.handle import JobHandle
from ..observability.tracing import AttemptSpan
from ..steps.recorder import Recorder
from .lease import Lease
from .run_signal import RunSignal


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One claimed job. `is_closed` once its outcome is known, `is_settled` once its claim is not ours to write with.

    `has_begun` once its body is to be called, `has_ended` once that has returned or raised; `task` runs it meanwhile,
    on the loop. `is_cancelled` if it was told to end before it was called.
    `stored` is the outcome that the store has taken. `recorder` is there once the body has asked for its steps, `span`
    where the process traces.
    """

    job: ClaimedJob
    handle: JobHandle[Any, Any]
    lease: Lease
    signal: RunSignal
    claimed_at: float
    started_at: float | None = None
    task: asyncio.Task[Any] | None = field(default=None, repr=False)
    has_begun: bool = False
    has_ended: bool = False
    is_cancelled: bool = False
    superseded_by: SettleAnswer | None = None
    stored: Outcome | None = None
    recorder: Recorder | None = field(default=None, repr=False)
    span: AttemptSpan | None = field(default=None, repr=False)
    is_closed: bool = False
    is_settled: bool = False
    is_blocking: bool = False

    @property
    def is_held(self) -> bool:
        """Say whether the claim is this worker's as far as it knows."""
        return self.superseded_by is None and self.lease.is_held

    @property
    def is_body_running(self) -> bool:
        """Say whether the body was called, or will be, and has not ended."""
        return self.has_begun and not self.has_ended

    @property
    def may_have_waits(self) -> bool:
        """Say whether the store may hold waits of this job's run.

        Known once the body has asked for its steps. Until then, a job that was claimed more often than it failed, was
        interrupted or crashed has given its worker back before, or was retried by hand.
        """
        counters = self.job.counters
        if self.recorder is not None and self.recorder.is_loaded:
            return self.recorder.has_waits
        if counters.claim_no == 1:
            return self.job.run_id != self.job.token.job_id  # a fork begins with calls that have failed
        return counters.claim_no > counters.attempt + counters.interrupts + counters.crashes

    @property
    def may_have_history(self) -> bool:
        """Say whether the store may hold steps of this job's run: it was claimed before, or begins as a fork.

        A body that asks for none is looked at once, when it has returned: code that has done without steps since.
        """
        return self.job.counters.claim_no > 1 or self.job.run_id != self.job.token.job_id

    def cancel_body(self) -> None:
        """Cancel the body; one that has not been called yet never is."""
        if self.task is None:
            self.is_cancelled = True
        else:
            self.task.cancel()

    def name(self) -> str:
        """Name the run for people: job type and id."""
        return f"{self.job.name} {self.job.token.job_id}"

    def revoke(self, by: SettleAnswer) -> None:
        """Tell the run that its claim is gone. A run whose body has ended is told by its settle's answer instead."""
        if self.has_ended:
            return
        self.superseded_by = by
        is_gone_by_hand = by in {SettleAnswer.CANCELLED, SettleAnswer.DELETED}
        self.signal.fire(Reason.CANCEL if is_gone_by_hand else Reason.LEASE_LOST)


def body_name(job_id: str) -> str:
    """Name the task of a body; a loop that hangs in it is traced to its job by that name."""
    return f"outlast.run.{job_id}"


class Roster:
    """All runs of one life of a worker, by claim."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, Run] = {}  # by fence, which no two claims share: a whole token is slow to hash

    def add(self, run: Run) -> None:
        """Take a run in."""
        with self._lock:
            self._runs[run.job.token.fence] = run

    def remove(self, run: Run) -> bool:
        """Let a run go; False when it had gone before."""
        with self._lock:
            return self._runs.pop(run.job.token.fence, None) is not None

    def run_of(self, token: ClaimToken) -> Run | None:
        """Give the run of a claim."""
        with self._lock:
            return self._runs.get(token.fence)

    def runs(self) -> tuple[Run, ...]:
        """Give all runs."""
        with self._lock:
            return tuple(self._runs.values())

    def has_open(self) -> bool:
        """Say whether any run has an open attempt."""
        with self._lock:
            return any(not run.is_settled for run in self._runs.values())

    def tokens(self, lease: Lease) -> tuple[ClaimToken, ...]:
        """Give the claims still open under a lease."""
        return tuple(run.job.token for run in self.runs() if run.lease is lease and not run.is_settled)

    def holding(self, lease: Lease) -> tuple[ClaimToken, ...]:
        """Give the claims under a lease whose bodies have not ended here, open or not."""
        return tuple(run.job.token for run in self.runs() if run.lease is lease)

    def blocks(self, task: str) -> None:
        """Mark the run whose body's task holds the loop."""
        for run in self.runs():
            if task == body_name(str(run.job.token.job_id)):
                run.is_blocking = True

    def revoked(self, revocations: tuple[Revocation, ...]) -> None:
        """Tell the runs whose claims the store no longer has."""
        for revocation in revocations:
            with self._lock:
                run = self._runs.get(revocation.token.fence)
            if run is not None and run.job.token == revocation.token:
                run.revoke(revocation.by)

    def lose(self, lease: Lease) -> int:
        """Tell every run under a lease that it is lost; gives how many had a claim."""
        lost = [run for run in self.runs() if run.lease is lease and not run.is_settled]
        for run in lost:
            run.signal.fire(Reason.LEASE_LOST)
        return len(lost)
