"""What a worker does for the bodies it runs: opens their durable steps, and keeps what they say of themselves.

A body that asks for neither costs nothing here. Made once per life; contexts are its faces.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import partial

from ..domain.job import ClaimedJob
from ..domain.step_errors import StepInvalid
from ..drivers.protocol import JobDriver
from ..lifecycle.timers import LoopTimers, Timers
from ..observability.tracing import Spans
from ..steps.api import Steps
from ..steps.points import AtPoint
from ..steps.recorder import Recorder
from ..steps.tools import Tools, run_over
from ..steps.values import Values
from .options import WorkerOptions
from .roster import Roster, Run
from .scribe import Scribe


class Desk:
    """The desk of one life of a worker; the `Desk` of contexts."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        options: WorkerOptions,
        roster: Roster,
        pool: Executor,
        scribe: Scribe,
        monotonic: Callable[[], float],
        timers: Timers | None = None,
        at: AtPoint | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._roster = roster
        self._scribe = scribe
        self._monotonic = monotonic
        self._tools = Tools(
            store=driver,
            pool=pool,
            values=Values(max_bytes=options.result_max_bytes),
            monotonic=monotonic,
            code_version=options.code_version,
            timers=timers or LoopTimers(),
            at=at,
            span=None if spans is None else spans.step,
        )

    def steps(self, job: ClaimedJob) -> Steps:
        """Open the durable steps of an attempt; asked once by its context.

        Raises:
            StepInvalid: its body is a plain `def`.
            RequestInvalid: it has ended.
        """
        run = self._roster.run_of(job.token)
        if run is None or run.has_ended:
            raise run_over(job)
        if run.handle.is_sync:
            raise StepInvalid(
                f"the body of {job.name} is a plain def, which cannot wait for a step",
                fix="use async def; ctx.step.run calls plain functions in a thread",
            )
        return Steps(self.open(run))

    def open(self, run: Run) -> Recorder:
        """Give what records a run's steps, made on first use."""
        if run.recorder is None:
            run.recorder = Recorder(
                self._tools,
                run.job,
                signal=run.signal,
                task=run.task,
                store_now=partial(_reckoned, run.job.claimed_at, run.claimed_at, self._monotonic),
                step_timeout=run.handle.policy.step_timeout,
            )
        return run.recorder

    def progress(self, job: ClaimedJob, value: float, message: str | None) -> None:
        """Keep how far a run has come. Any thread."""
        self._scribe.progress(job.token, value, message)

    def log(self, job: ClaimedJob, message: str) -> None:
        """Keep a line of a run. Any thread."""
        self._scribe.log(job.token, message)


def store_now(run: Run, now: float) -> datetime:
    """Reckon the store's time from the claim on: this machine's own clock may be wrong."""
    return run.job.claimed_at + timedelta(seconds=now - run.claimed_at)


def _reckoned(claimed_at: datetime, then: float, monotonic: Callable[[], float]) -> datetime:
    """Do the same without the run, which holds what asks: a circle is left to the collector, and costs each run."""
    return claimed_at + timedelta(seconds=monotonic() - then)
