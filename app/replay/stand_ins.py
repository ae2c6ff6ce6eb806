"""What a body meets under replay in the places of a worker and a store: everything answers, nothing is done.

Built by `attempt` for one replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from typing import Any

from ..domain.job import ClaimedJob, ClaimToken, Enqueued, JobId, NewJob, RunId
from ..domain.step import NewStep, RunHistory
from ..domain.verdict import Reason
from ..steps.api import Steps
from ..steps.recorder import Recorder
from ..steps.suspension import Suspension
from .outside import Refusals


class Wall:
    """The signal of the steps: the first step that is not recorded suspends its branch, before anything of it is done.

    Its `recorder` is set once that is made.
    """

    recorder: Recorder | None = None
    first: Reason | None = None

    def raise_if_aborted(self) -> None:
        """End the branch here: steps ask this before each that has no record."""
        if self.recorder is not None:
            self.recorder.here().branch.is_suspended = True
        raise Suspension("this step is not recorded")

    @contextmanager
    def in_store(self) -> Iterator[None]:
        """Hold nothing back."""
        yield


class CalmSignal:
    """The signal that the body reads: it never fires."""

    aborted = False
    reason: Reason | None = None

    def raise_if_aborted(self) -> None:
        """Let the body go on."""

    def wait(self, timeout: timedelta | None = None) -> Any:  # noqa: ANN401 - the overloads are the protocol's
        """Wait for what never comes: for ever, or for no time where there is a timeout."""
        return self._for_ever() if timeout is None else False

    async def _for_ever(self) -> Reason:
        await asyncio.Event().wait()
        return Reason.CALLER


class RecordedRun:
    """The store of one run: it has what the trace has, and takes nothing."""

    def __init__(self, history: RunHistory, refusals: Refusals) -> None:
        self._history = history
        self._refusals = refusals

    async def history(self, job_id: JobId, run_id: RunId) -> RunHistory:
        """Give what is recorded."""
        del job_id, run_id
        return self._history

    def step_transaction(
        self, token: ClaimToken, step: NewStep, *, bind: object | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """Refuse: only a recorded block that cannot be left out comes here, and it would run in a session."""
        del token, bind
        raise self._refusals.refuse(f"runs the recorded transaction {step.name!r} again, which cannot be left out here")


class NoStore:
    """The store that the body enqueues to: it says yes and keeps nothing."""

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Answer as if the job were new."""
        return Enqueued(id=job.id, run_id=RunId(job.id), deduped=False)

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """Answer as if the jobs were new."""
        return tuple([await self.enqueue(job) for job in jobs])


class Desk:
    """The desk of one replay: steps answer from the record, lines and progress go nowhere."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def steps(self, job: ClaimedJob) -> Steps:
        """Open the steps."""
        del job
        return Steps(self._recorder)

    def progress(self, job: ClaimedJob, value: float, message: str | None) -> None:
        """Keep nothing."""

    def log(self, job: ClaimedJob, message: str) -> None:
        """Keep nothing."""
