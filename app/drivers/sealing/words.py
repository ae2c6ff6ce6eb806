"""What of each value of the vocabulary is sealed and opened, and as what.

A payload, a result, a step's value and an event's payload are JSON; lines, progress, messages and tracebacks are words.
All else is what the store looks things up by, and stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from ...domain.event import EventView, NewEvent
from ...domain.job import ClaimedJob, JobId, NewJob
from ...domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Held,
    Interrupted,
    Outcome,
    Retried,
    Settlement,
    Suspended,
)
from ...domain.sealed import OF_EVENT, Seals, of_error, of_notes, of_payload, of_result, of_step
from ...domain.snapshot import AttemptView, JobView
from ...domain.step import (
    LogLine,
    NewNotes,
    NewStep,
    NewWait,
    ProgressView,
    RunHistory,
    RunView,
    StepKind,
    StepView,
    WaitView,
)


class Words:
    """Seals and opens whole values; what needs no change is given back as it is."""

    def __init__(self, seals: Seals) -> None:
        self.seals = seals

    # --- sealing

    def job(self, job: NewJob) -> NewJob:
        """Seal a job's payload."""
        return replace(job, payload=self.seals.seal(job.payload, of_payload(job.id)))

    def event(self, event: NewEvent) -> NewEvent:
        """Seal what an event carries."""
        return replace(event, payload=self.seals.seal(event.payload, OF_EVENT))

    def step(self, job_id: JobId, step: NewStep) -> NewStep:
        """Seal what a step gave."""
        if step.value is None:
            return step
        return step._replace(value=self.seals.seal(step.value, of_step(job_id, step.name)))

    def notes(self, notes: NewNotes) -> NewNotes:
        """Seal lines, and the words of progress."""
        context = of_notes(notes.token.job_id)
        progress = notes.progress
        if progress is not None and progress[1] is not None:
            progress = progress[0], self.seals.seal_words(progress[1], context)
        lines = tuple(self.seals.seal_words(line, context) for line in notes.lines)
        return notes._replace(lines=lines, progress=progress)

    def settlement(self, settlement: Settlement) -> Settlement:
        """Seal a result, the words of an error, and the payloads of children that a run calls."""
        return settlement._replace(outcome=self._outcome(settlement.token.job_id, settlement.outcome))

    def _outcome(self, job_id: JobId, outcome: Outcome) -> Outcome:
        match outcome:
            case Completed(result=str(result)):
                return replace(outcome, result=self.seals.seal(result, of_result(job_id)))
            case Suspended(waits=waits):
                return replace(outcome, waits=tuple(map(self._new_wait, waits)))
            case Retried() | DeadLettered():
                return replace(outcome, error=self._error(job_id, outcome.error))
            case Interrupted() | Cancelled() | Held() if outcome.error is not None:
                return replace(outcome, error=self._error(job_id, outcome.error))
            case _:
                return outcome

    def _new_wait(self, wait: NewWait) -> NewWait:
        return wait if wait.child is None else replace(wait, child=self.job(wait.child))

    def _error(self, job_id: JobId, error: ErrorInfo) -> ErrorInfo:
        context, trace = of_error(job_id), error.traceback
        return replace(
            error,
            message=self.seals.seal_words(error.message, context),
            traceback=None if trace is None else self.seals.seal_words(trace, context),
        )

    # --- opening

    def claimed(self, job: ClaimedJob) -> ClaimedJob:
        """Open the payload of a job in a worker's hands."""
        return job._replace(payload=self.seals.open(job.payload, of_payload(job.token.job_id)))

    def view(self, view: JobView) -> JobView:
        """Open all that is shown of a job."""
        payload, result, error, progress = view.payload, view.result, view.error, view.progress
        return replace(
            view,
            payload=None if payload is None else self.seals.open(payload, of_payload(view.id)),
            result=None if result is None else self.seals.open(result, of_result(view.id)),
            error=None if error is None else self._opened_error(view.id, error),
            progress=None if progress is None else self._progress(view.id, progress),
            waiting_on=tuple(map(self._wait, view.waiting_on)),
        )

    def attempt(self, job_id: JobId, attempt: AttemptView) -> AttemptView:
        """Open what an attempt failed with."""
        if attempt.error is None:
            return attempt
        return replace(attempt, error=self._opened_error(job_id, attempt.error))

    def history(self, job_id: JobId, history: RunHistory) -> RunHistory:
        """Open what is recorded of a run."""
        return RunHistory(
            steps=tuple(self._step(job_id, step) for step in history.steps), waits=tuple(map(self._wait, history.waits))
        )

    def run(self, job_id: JobId, run: RunView) -> RunView:
        """Open what is shown of a run."""
        return replace(
            run,
            history=self.history(job_id, run.history),
            lines=tuple(self._line(job_id, line) for line in run.lines),
            progress=None if run.progress is None else self._progress(job_id, run.progress),
        )

    def shown_event(self, event: EventView) -> EventView:
        """Open what a stored event carries."""
        return replace(event, payload=self.seals.open(event.payload, OF_EVENT))

    def _step(self, job_id: JobId, step: StepView) -> StepView:
        if step.value is None:
            return step
        if step.kind is StepKind.EVENT:
            context = OF_EVENT
        elif step.kind is StepKind.CALL and step.child_id is not None:
            context = of_result(step.child_id)
        else:
            context = of_step(job_id, step.name)
        return replace(step, value=self.seals.open(step.value, context))

    def _wait(self, wait: WaitView) -> WaitView:
        said = wait.child_error_message
        if said is None or wait.child_id is None:
            return wait
        return replace(wait, child_error_message=self.seals.open_words(said, of_error(wait.child_id)))

    def _line(self, job_id: JobId, line: LogLine) -> LogLine:
        return replace(line, message=self.seals.open_words(line.message, of_notes(job_id)))

    def _progress(self, job_id: JobId, progress: ProgressView) -> ProgressView:
        if progress.message is None:
            return progress
        return replace(progress, message=self.seals.open_words(progress.message, of_notes(job_id)))

    def _opened_error(self, job_id: JobId, error: ErrorInfo) -> ErrorInfo:
        context, trace = of_error(job_id), error.traceback
        return replace(
            error,
            message=self.seals.open_words(error.message, context),
            traceback=None if trace is None else self.seals.open_words(trace, context),
        )

    # --- from one job to another

    def payload(self, text: str, was: JobId, now: JobId) -> str:
        """See `Recode`."""
        return self.seals.moved(text, of_payload(was), of_payload(now))

    def value(self, text: str, was: JobId, now: JobId, step: str) -> str:
        """See `Recode`."""
        return self.seals.moved(text, of_step(was, step), of_step(now, step))
