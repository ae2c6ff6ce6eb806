"""One claimed job to exactly one outcome, settled: the data path of the worker, from claim to the store's answer.

Total: whatever a body does, its run ends; the only thing it can leave behind is a body that nothing ends, and that
keeps its place. A run costs one task, its body's; everything after the body is done in callbacks on the worker's loop.
Driven by the claim loop.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from ..domain.errors import Internal, JobTimeout, OutlastError, RequestInvalid, ResultInvalid
from ..domain.outcome import (
    KIND_OF,
    Completed,
    DeadLettered,
    ErrorInfo,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    SettleAnswer,
    Snoozed,
    Suspended,
)
from ..domain.state import DeadReason
from ..domain.verdict import Budget, Ended, Raised, Returned, verdict
from ..jobs.client import Client
from ..lifecycle.timers import Timers
from ..observability.telemetry import Telemetry
from ..observability.tracing import Spans
from ..steps.points import AtPoint
from .bodies import Bodies
from .desk import Desk, store_now
from .error_info import error_info
from .execute import Caller, left_of, timeout_of
from .options import WorkerOptions
from .roster import Run
from .scribe import Scribe
from .settler import Pending, Settler


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every run works with.

    `on_due` hears when a delayed job is due, `on_wait` when a suspended one is, `on_fault` what went wrong in our code,
    `on_told` that a job has ended whose end is to be told.
    `timers` are the loop's, unless others are given; `at` is called at the points of each attempt.
    """

    options: WorkerOptions
    telemetry: Telemetry
    settler: Settler
    pool: Executor
    roll: Callable[[], float]
    monotonic: Callable[[], float]
    client: Client | None
    desk: Desk
    scribe: Scribe
    on_due: Callable[[timedelta], None]
    on_wait: Callable[[timedelta], None]
    on_fault: Callable[[BaseException], None]
    on_told: Callable[[], None] = lambda: None
    timers: Timers | None = None
    at: AtPoint | None = None
    spans: Spans | None = None


_DONE = Completed()
# When a worker looks for the end of a job that a run has called by a key: the longer it takes, the seldomer. Later ends
# are met by the looks for what is due.
_CALLED_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)
_TOO_LATE = ErrorInfo(
    type=JobTimeout.__name__, message="the job's deadline passed before it began", code=JobTimeout.code
)
_REFUSED = ErrorInfo(
    type=ResultInvalid.__name__, message="the store refused the outcome of this attempt", code=ResultInvalid.code
)


class Carrier:
    """Carries runs from their beginning to their end; `on_over` hears of each that has no body and no attempt left."""

    def __init__(self, bench: Bench, *, on_over: Callable[[Run], None]) -> None:
        self._bench = bench
        self._on_over = on_over
        self._is_given_up = False
        caller = Caller(
            telemetry=bench.telemetry,
            monotonic=bench.monotonic,
            client=bench.client,
            options=bench.options,
            desk=bench.desk,
            at=bench.at,
            spans=bench.spans,
        )
        self._bodies = Bodies(caller=caller, pool=bench.pool, monotonic=bench.monotonic, on_ended=self._body_ended)

    def begin(self, run: Run) -> bool:
        """Begin one claimed job; what becomes of it is settled. False: told to stop before, the claim is to go back.

        One whose deadline has passed by now is closed without a beginning.
        """
        if not run.is_held:
            run.is_settled = True
            self._said_superseded(run, run.superseded_by)
            self._on_over(run)
        elif run.signal.aborted:
            return False
        elif run.job.deadline_in is not None and left_of(run, self._bench.monotonic()) <= timedelta():
            self._store(run, DeadLettered(error=_TOO_LATE, reason=DeadReason.DEADLINE))
        else:
            self._call(run)
        return True

    def give_back(self) -> list[Run]:
        """Give the runs that a drain told before their bodies were called: their claims are to go back. Asked once."""
        told = self._bodies.give_back()
        for run in told:
            run.signal.disarm()
        return told

    def give_up(self) -> None:
        """Leave what has not ended: an attempt whose body ends after this is closed by whoever takes it over."""
        self._is_given_up = True

    # --- the body ---------------------------------------------------------------------------------------------------

    def _call(self, run: Run) -> None:
        run.signal.on_close(partial(self._closed_over, run))
        if run.signal.may_cancel:
            run.signal.on_cancel(run.cancel_body)
        self._bodies.begin(run)

    def _failed(self, run: Run, error: BaseException) -> None:
        """Let a run go that our own code failed: its claim goes back with the next reconciliation."""
        self._bench.on_fault(error)
        self._on_over(run)

    def _body_ended(self, run: Run, ended: Ended) -> None:
        try:
            if run.is_closed:
                if run.is_settled:
                    self._on_over(run)
            elif not self._is_given_up:
                run.signal.disarm()
                self._close(run, ended)
        except Exception as error:  # noqa: BLE001 - reported to the life's owner
            self._failed(run, error)

    def _closed_over(self, run: Run) -> None:
        """Close an attempt over a body that does not end."""
        if self._is_given_up or run.is_closed or not run.is_body_running:
            return
        try:
            self._close(run, Raised(error=_still_running(run)))
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(run, error)

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _close(self, run: Run, ended: Ended) -> None:
        """Decide what the attempt becomes and have it stored."""
        run.is_closed = True
        first, is_held = run.signal.first, run.is_held
        outcome: Outcome | None
        if is_held and first is None and isinstance(ended, Returned):
            outcome = _DONE if ended.result is None else Completed(result=ended.result)
        else:
            backoff = _backoff(run, self._bench.roll)
            outcome = verdict(is_held=is_held, first=first, ended=ended, budget=_budget(run), backoff=backoff)
        if outcome is not None:
            self._store(run, outcome)
            return
        run.is_settled = True
        self._ended(run, self._said_superseded(run, run.superseded_by))

    def _store(self, run: Run, outcome: Outcome) -> None:
        run.is_closed = True
        pending = Pending(run=run, outcome=outcome, on_answer=self._answered)
        if self._bench.scribe.owes(run.job.token):
            self._bench.scribe.after(partial(self._bench.settler.put, pending))
        else:
            self._bench.settler.put(pending)

    def _answered(self, run: Run, stored: Outcome, answer: SettleAnswer | None) -> None:
        try:
            run.is_settled = True
            self._ended(run, self._said(run, stored, answer))
        except Exception as error:  # noqa: BLE001 - one run's fault must not keep the others' answers from them
            self._failed(run, error)

    def _said(self, run: Run, stored: Outcome, answer: SettleAnswer | None) -> str:
        """Say how an attempt ended; gives the word for it."""
        if answer is SettleAnswer.SETTLED:
            run.stored = stored
            if run.job.calls_back:
                self._bench.on_told()
            seconds = _seconds(run, self._bench)
            facts = _facts(run, stored)
            self._bench.telemetry.attempt_settled(run.job, stored, seconds, is_blocking=run.is_blocking, facts=facts)
            if isinstance(stored, Retried | Snoozed | Interrupted) and stored.delay is not None:
                # Said when a job that waits is due, so that this worker looks at that instant rather than by chance.
                self._bench.on_due(stored.delay)
            elif isinstance(stored, Suspended):
                self._wakes(run, stored)
            return KIND_OF[type(stored)]
        if answer is not None:
            return self._said_superseded(run, answer)
        return OutcomeKind.LEASE_LOST.value

    def _wakes(self, run: Run, stored: Suspended) -> None:
        """Say, for the same reason, when a wait of a suspended run is due."""
        now = store_now(run, self._bench.monotonic())
        for wait in stored.waits:
            delay = wait.delay if wait.until is None else wait.until - now
            if delay is not None:
                self._bench.on_wait(max(delay, timedelta()))
            if wait.child is not None and wait.child.key is not None:
                # A job that was there before may answer the call, and nobody is told of its end.
                for seconds in _CALLED_SECONDS:
                    self._bench.on_wait(timedelta(seconds=seconds))

    def _said_superseded(self, run: Run, by: SettleAnswer | None) -> str:
        seconds = None if run.started_at is None else _seconds(run, self._bench)
        if by in {SettleAnswer.CANCELLED, SettleAnswer.DELETED}:
            self._bench.telemetry.attempt_superseded(run.job, by, seconds)
            return by.value
        self._bench.telemetry.lease_lost(run.job, seconds)
        return OutcomeKind.LEASE_LOST.value

    def _ended(self, run: Run, closed: str) -> None:
        """Let a run go, or wait for the end of a body that runs on."""
        if run.span is not None:
            run.span.ended(closed, error=_error_type(run))
        if run.is_body_running:
            seconds = _seconds(run, self._bench)
            self._bench.telemetry.attempt_abandoned(run.job, closed, seconds, reason=_word(run))
        else:
            self._on_over(run)


def fallback_of(run: Run, refusal: Exception, *, roll: Callable[[], float]) -> Outcome:
    """Give what is stored when the store refuses the outcome itself: an attempt never stays running for its value.

    What refuses a suspension is one of the children it calls.
    """
    error = _REFUSED if isinstance(refusal, RequestInvalid) else error_info(refusal)
    if isinstance(refusal, OutlastError) and refusal.terminal:
        return DeadLettered(error=error, reason=DeadReason.TERMINAL)
    if _budget(run).is_spent:
        return DeadLettered(error=error, reason=DeadReason.ATTEMPTS_EXHAUSTED)
    return Retried(error=error, delay=_backoff(run, roll))


def _still_running(run: Run) -> ErrorInfo:
    return ErrorInfo(
        type=JobTimeout.__name__ if run.is_held else Internal.__name__,
        message="the attempt was closed while its body still ran",
        code=JobTimeout.code if run.is_held else Internal.code,
    )


def _facts(run: Run, stored: Outcome) -> dict[str, object] | None:
    """Say what an attempt has done of its run; nothing of one without steps."""
    recorder = run.recorder
    if recorder is None:
        return None
    facts: dict[str, object] = {"steps": recorder.steps, "replayed": recorder.replayed}
    if recorder.reached is not None and not isinstance(stored, Completed | Suspended):
        facts["step"] = recorder.reached
    return facts


def _budget(run: Run) -> Budget:
    return Budget(attempt=run.job.counters.attempt, max_attempts=run.job.max_attempts, timeout=timeout_of(run))


def _backoff(run: Run, roll: Callable[[], float]) -> timedelta:
    return run.handle.policy.retry.delay_after(run.job.counters.attempt, roll())


def _seconds(run: Run, bench: Bench) -> float:
    return 0.0 if run.started_at is None else bench.monotonic() - run.started_at


def _error_type(run: Run) -> str | None:
    error = getattr(run.stored, "error", None)
    return error.type if isinstance(error, ErrorInfo) else None


def _word(run: Run) -> str:
    return "" if run.signal.first is None else run.signal.first.value
