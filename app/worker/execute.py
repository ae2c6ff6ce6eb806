"""Calls a body and says how it ended: on the loop for `async def`, in a bounded thread pool for `def`.

Whatever a body raises, `SystemExit` and an exception whose text raises included, ends as a value: nothing leaves
through here. Who told the body to stop is not asked; that is the verdict's. Called by `bodies`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

from ..domain.errors import OutlastError, PayloadInvalid, PayloadUnreadable
from ..domain.sealed import why_unreadable
from ..domain.step_errors import TransactionCut
from ..domain.verdict import Ended, Mismatched, Raised, Returned, Suspending, Unstorable, Waiting
from ..jobs.client import Client, be_current
from ..jobs.context import JobContext, context_of
from ..jobs.exits import RetryAfter, Snooze, Terminal
from ..jobs.invoke import bind, encode_result
from ..lifecycle.tasks import start_on
from ..observability.logging import Correlator
from ..observability.telemetry import Telemetry
from ..observability.tracing import Spans
from ..steps.points import AtPoint, Moment, Point
from ..steps.suspension import Suspension
from .containment import enter_body
from .desk import Desk, store_now
from .error_info import error_info, leaves
from .options import WorkerOptions
from .roster import Run

_NOTHING = Returned(result=None)
# How often a job may have been interrupted and still not be charged with an outage: one whose own statements bring the
# database down must not do so for ever.
_MOST_UNCOUNTED = 10


class _PayloadRefusedError(Exception):
    """The job's model refuses its payload; the cause says why. No body has raised it."""


class Call:
    """A body to call: the run and what the body is told about its attempt."""

    __slots__ = ("context", "run")

    def __init__(self, run: Run, context: JobContext) -> None:
        self.run = run
        self.context = context


class Caller:
    """Calls bodies. `client` is what they enqueue with, else the ambient one."""

    def __init__(
        self,
        *,
        telemetry: Telemetry,
        monotonic: Callable[[], float],
        client: Client | None,
        options: WorkerOptions,
        desk: Desk,
        at: AtPoint | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._client = client
        self._desk = desk
        self._at = at
        self._spans = spans
        self._loop = asyncio.get_running_loop()
        self._code_version = options.code_version
        self._result_max_bytes = options.result_max_bytes
        self._correlator = Correlator("job_id", "job", "attempt")

    def prepare(self, run: Run) -> Call:
        """Begin an attempt: its clocks run from here. Raises what metadata that nobody can read raises."""
        run.started_at = self._monotonic()
        job = run.job
        timeout = timeout_of(run)
        if timeout is not None or job.deadline_in is not None:
            deadline_in = None if job.deadline_in is None else left_of(run, run.started_at)
            run.signal.arm(timeout=timeout, deadline_in=deadline_in)
        context = context_of(job, signal=run.signal, desk=self._desk)
        self._telemetry.attempt_started(job)
        if self._spans is not None:
            run.span = self._spans.attempt(job)
        return Call(run, context)

    async def on_loop(self, run: Run, task: asyncio.Task[Any]) -> Ended:
        """Call an `async def`; gives how it ended and never raises."""
        try:
            call = self.prepare(run)
            args, kwargs = self._enter(call, task)
            value = await cast("Awaitable[object]", run.handle.body(*args, **kwargs))
            if run.recorder is not None or run.may_have_history:
                await self._desk.open(run).finish()
        except BaseException as exc:  # noqa: BLE001 - a body may raise anything, and only its own attempt ends
            if self._at is not None:
                await self._at(_end_of(run, exc))
            return self._stands(run, exc) or self._how_it_ended(exc, run)
        if self._at is not None:
            await self._at(_end_of(run, None))
        if run.recorder is None:
            return self._returned(value, run)
        return self._stands(run, None) or self._returned(value, run)

    def in_thread(self, call: Call) -> Ended:
        """Call a `def`; gives how it ended and never raises."""
        try:
            args, kwargs = self._enter(call, None)
            value = call.run.handle.body(*args, **kwargs)
        except BaseException as exc:  # noqa: BLE001 - as above; the pool's thread goes on
            self._reach_end(call.run, exc)
            return self._how_it_ended(exc, call.run)
        self._reach_end(call.run, None)
        return self._returned(value, call.run)

    async def ahead(self, run: Run) -> Ended | None:
        """Look, before a `def` is called, whether its run has recorded steps, which no `def` asks for."""
        try:
            await self._desk.open(run).finish()
        except Exception as exc:  # noqa: BLE001 - as above
            return self._stands(run, exc) or self._how_it_ended(exc, run)
        return None

    def _reach_end(self, run: Run, error: BaseException | None) -> None:
        """Let whoever stands at the points of attempts do what it came for, on the loop; the thread waits."""
        if self._at is not None:
            start_on(self._loop, _called(self._at, _end_of(run, error))).result()

    def _stands(self, run: Run, error: BaseException | None) -> Ended | None:
        """Give what the run's steps have made of the attempt, whatever its body made of that; None: nothing."""
        recorder = run.recorder
        if recorder is None:
            return None
        recorder.is_over = True
        if (diverged := recorder.diverged) is not None:
            recorded_by = diverged.details["code_version"]
            version = None if recorded_by == self._code_version else str(recorded_by)
            return Mismatched(error=error_info(diverged), reason=diverged.cause, version=version)
        if recorder.stop.error is not None:
            # Neither a result nor a wish made of it: the body could not do what it had to.
            return Raised(error=error_info(recorder.stop.error))
        if not (waits := recorder.waits):
            return None
        for branch, failure in recorder.failed_beside:
            self._telemetry.branch_failed(run.job, failure, branch=branch.path)
        if error is None or not any(isinstance(leaf, Suspension) for leaf in leaves(error)):
            self._telemetry.suspension_swallowed(run.job, None if error is None else type(error).__name__)
        return Waiting(waits=waits)

    def _enter(self, call: Call, task: asyncio.Task[Any] | None) -> tuple[tuple[object, ...], dict[str, object]]:
        """Make the current context the body's own, which names the job on what it logs; gives its arguments."""
        run = call.run
        job = run.job
        enter_body(task)
        self._correlator.put(str(job.token.job_id), job.name, job.counters.attempt)
        if run.span is not None:
            run.span.enter()
        if self._client is not None:
            be_current(self._client.guarded(run.signal.in_store))
        try:
            return bind(run.handle, job.payload, call.context)
        except PayloadInvalid as error:
            raise _PayloadRefusedError from (why_unreadable(job.payload) or error)

    def _returned(self, value: object, run: Run) -> Ended:
        try:
            result = encode_result(run.handle, value, max_bytes=self._result_max_bytes)
        except BaseException as exc:  # noqa: BLE001 - serialisers run the author's code
            return Unstorable(error=error_info(exc))
        return _NOTHING if result is None else Returned(result=result)

    def _how_it_ended(self, error: BaseException, run: Run) -> Ended:
        """Sort an error: a snooze wherever it is found, else a failure with what it says about retrying."""
        if isinstance(error, _PayloadRefusedError) and error.__cause__ is not None:
            refused = error_info(error.__cause__)
            # Only a process with the key can say whether the payload fits: an operator releases the job to such.
            may_fit = isinstance(error.__cause__, PayloadUnreadable)
            return Mismatched(error=refused, reason=refused.message, or_dead=not may_fit)
        inside = tuple(leaves(error))
        for leaf in inside:
            if isinstance(leaf, Snooze):
                return Suspending(delay=leaf.delay)
        waits = [leaf.delay_from(store_now(run, self._monotonic())) for leaf in inside if isinstance(leaf, RetryAfter)]
        return Raised(
            error=error_info(error),
            is_terminal=any(_is_terminal(leaf, run) for leaf in (error, *inside)),
            is_outage=_is_outage(inside, run),
            retry_after=max(waits, default=None),
        )


def _end_of(run: Run, error: BaseException | None) -> Point:
    step = None if run.recorder is None else run.recorder.reached
    return Point(job=run.job, signal=run.signal, moment=Moment.END, step=step, error=error)


async def _called(at: AtPoint, point: Point) -> None:
    await at(point)


def timeout_of(run: Run) -> timedelta | None:
    """Give the lower of what the job type allows and what the request asked for."""
    own, asked = run.handle.policy.timeout, run.job.timeout
    if own is None or asked is None:
        return asked if own is None else own
    return min(own, asked)


def left_of(run: Run, now: float) -> timedelta:
    """Give what is left until the job's deadline, reckoned from the claim on; for a job that has one."""
    return (run.job.deadline_in or timedelta()) - timedelta(seconds=now - run.claimed_at)


def _is_outage(inside: tuple[BaseException, ...], run: Run) -> bool:
    """Say whether the database cut the attempt off; a job that was interrupted very often is charged with it.

    A store that is busy was there: whatever of it ends a body is the body's failure.
    """
    return run.job.counters.interrupts < _MOST_UNCOUNTED and any(isinstance(leaf, TransactionCut) for leaf in inside)


def _is_terminal(error: BaseException, run: Run) -> bool:
    """Say whether the error says itself that no retry can help, or the job type does."""
    if isinstance(error, OutlastError):
        return error.terminal or isinstance(error, tuple(run.handle.policy.terminal_on))
    return isinstance(error, (Terminal, *run.handle.policy.terminal_on))
