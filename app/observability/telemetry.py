"""What the product says about itself: every log event is worded here, every counter moves here.

One object is built by the composition root and handed down; there is no global. It never sees a payload, a result or
the text of an exception (any of them can hold a secret), only names, ids, codes and kinds. Safe from any thread. The
events of relays are in `telemetry_outbox`, those of schedulers in `telemetry_schedules`, of housekeeping in
`telemetry_purge`, of bulk operations in `telemetry_bulk`, of webhooks in `telemetry_webhooks`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, get_args

from structlog.typing import FilteringBoundLogger

from ..domain.errors import Draining, DriverUnavailable, QueryTooSlow
from ..domain.job import ClaimedJob, JobId
from ..domain.outcome import (
    KIND_OF,
    RULE_OF,
    Outcome,
    OutcomeKind,
    SettleAnswer,
)
from ..domain.snapshot import Expired, Reaped, Stats
from .facts import code_of, lasted, of_job, of_taken
from .flow import FlowMeter
from .metrics import Metrics
from .telemetry_attempts import Level, worded
from .telemetry_auth import AuthEvents
from .telemetry_bulk import BulkEvents
from .telemetry_outbox import OutboxEvents
from .telemetry_purge import PurgeEvents
from .telemetry_schedules import ScheduleEvents
from .telemetry_webhooks import WebhookEvents
from .throttle import Throttle

Tap = Callable[[str, Mapping[str, object]], None]
Phase = Literal["", "accept", "inflight", "close"]

_MANY_INTERRUPTS = 10  # from here on a job that never gets to its end is worth a look
_NUMBER_OF: dict[Level, int] = {name: logging.getLevelNamesMapping()[name.upper()] for name in get_args(Level)}
_PHASE_NUMBER: dict[Phase, int] = {"": 0, "accept": 1, "inflight": 2, "close": 3}


class Telemetry(OutboxEvents, PurgeEvents, ScheduleEvents, BulkEvents, AuthEvents, WebhookEvents):
    """The voice of one process. Without a logger it only counts and tells its taps."""

    def __init__(
        self, *, metrics: Metrics, log: FilteringBoundLogger | None = None, throttle: Throttle | None = None
    ) -> None:
        self.metrics = metrics
        self.flow = FlowMeter(metrics)
        self._log = log
        self._throttle = throttle or Throttle()
        self._lock = threading.Lock()
        self._taps: tuple[Tap, ...] = ()

    def subscribe(self, tap: Tap) -> Callable[[], None]:
        """Tell `tap` of every event, on the thread it happens on; gives the way to stop."""
        with self._lock:
            self._taps = (*self._taps, tap)

        def detach() -> None:
            with self._lock:
                self._taps = tuple(other for other in self._taps if other is not tap)

        return detach

    # --- attempts ---------------------------------------------------------------------------------------------------

    def attempt_started(self, job: ClaimedJob) -> None:
        """A body begins."""
        if job.counters.claim_no == 1:
            since = job.created_at if job.run_at is None else max(job.created_at, job.run_at)
            waited = max((job.claimed_at - since).total_seconds(), 0.0)
            self.metrics.kind(job.name, job.queue).wait_seconds.observe(waited)
        if self._is_heard("debug"):
            self._say("debug", "attempt.started", **of_job(job))

    def attempt_settled(
        self,
        job: ClaimedJob,
        outcome: Outcome,
        seconds: float,
        *,
        is_blocking: bool = False,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """The store has taken an outcome; only now does anything count. `is_blocking`: the body held the loop.

        `facts` are those of its run's steps.
        """
        kind = KIND_OF[type(outcome)]
        metrics = self.metrics.kind(job.name, job.queue)
        metrics.attempt_seconds.observe(seconds)
        if (label := RULE_OF[kind].label) is not None:
            metrics.counted(label)
        if kind is OutcomeKind.INTERRUPTED:
            self.metrics.interrupted.labels(**self.metrics.labels(job.name, job.queue)).inc()
        if kind is OutcomeKind.COMPLETED and not self._is_heard("info"):
            return
        level, event, words = worded(outcome)
        facts = words if facts is None else {**words, **facts}
        if kind is OutcomeKind.INTERRUPTED and job.counters.interrupts + 1 >= _MANY_INTERRUPTS:
            level, facts = "warning", {**facts, "interrupts": job.counters.interrupts + 1}
        if is_blocking:
            facts = {**facts, "blocking": True}
        self._say(level, event, outcome=kind.value, duration_ms=round(seconds * 1000, 1), **of_job(job), **facts)

    def suspension_swallowed(self, job: ClaimedJob, error: str | None) -> None:
        """A body caught the exception that suspends its run and went on; the run is suspended all the same."""
        fix = "let BaseException pass in the body: catch Exception, and clean up in finally"
        self._say("warning", "suspension.swallowed", error=error, fix=fix, **of_job(job))

    def branch_failed(self, job: ClaimedJob, error: BaseException, *, branch: str) -> None:
        """A branch of a `gather` failed beside one that waits: its error is raised once none waits any more."""
        fix = "it is raised once no branch waits; give the wait a timeout, or do what may fail before the gather"
        facts = {"branch": branch, "error": type(error).__name__, "code": code_of(error), "fix": fix}
        self._say("warning", "branch.failed", **facts, **of_job(job))

    def attempt_superseded(self, job: ClaimedJob, by: SettleAnswer, seconds: float | None) -> None:
        """An attempt ended after its claim was cancelled or deleted: nothing was stored, and nothing is wrong."""
        self._say("debug", "attempt.superseded", outcome=by.value, by=by.value, **lasted(seconds), **of_job(job))

    def lease_lost(self, job: ClaimedJob, seconds: float | None) -> None:
        """An attempt ended after its claim was taken over: nothing it did was stored."""
        self._say("warning", "lease.lost", outcome=OutcomeKind.LEASE_LOST.value, **lasted(seconds), **of_job(job))

    def attempt_abandoned(self, job: ClaimedJob, outcome: str, seconds: float | None, *, reason: str) -> None:
        """An attempt was closed with this outcome while its body still runs; it keeps its place until that ends."""
        fix = "make the body watch ctx.signal, or let it be cancelled (abort='cancel')"
        facts = {**lasted(seconds), **of_job(job)}
        self._say("warning", "attempt.abandoned", outcome=outcome, reason=reason, fix=fix, **facts)

    def claims_taken_over(self, reaped: Iterable[Reaped]) -> None:
        """Claims of a worker that is gone were closed in its place."""
        for one in reaped:
            labels, facts = self.metrics.labels(one.name, one.queue), of_taken(one)
            match one.outcome:
                case OutcomeKind.CRASHED:
                    self.metrics.crashed.labels(**labels).inc()
                    self._say("error" if one.is_dead else "warning", "attempt.crashed", **facts)
                case OutcomeKind.LEASE_LOST:
                    self.metrics.lease_lost.labels(**labels).inc()
                    self._say("warning", "attempt.lease_lost", **facts)
                case _:
                    self.metrics.interrupted.labels(**labels).inc()
                    self._say("info", "attempt.interrupted", **facts)

    def jobs_expired(self, expired: Iterable[Expired]) -> None:
        """Jobs that waited past a limit of theirs are dead letters."""
        for one in expired:
            self.metrics.jobs.labels(**self.metrics.labels(one.name, one.queue), outcome="dead").inc()
            facts = {"job_id": str(one.job_id), "job": one.name, "queue": one.queue, "reason": one.reason.value}
            self._say("error", "job.dead", outcome=OutcomeKind.DEAD_LETTERED.value, **facts)

    # --- the worker --------------------------------------------------------------------------------------------------

    def worker_started(self, worker_id: int, *, queues: Iterable[str], concurrency: int, jobs: int) -> None:
        """A worker is registered and claims."""
        names = ",".join(queues)
        self._say("info", "worker.started", worker_id=worker_id, queues=names, concurrency=concurrency, jobs=jobs)

    def worker_stopped(self, worker_id: int) -> None:
        """A worker has left in order."""
        self._say("info", "worker.stopped", worker_id=worker_id)

    def worker_lease_over(self, worker_id: int, *, held: int) -> None:
        """A worker judged its own lease over and gives its claims up."""
        self._say("error", "worker.lease_over", worker_id=worker_id, held=held)

    def worker_drain_signalled(self, worker_id: int, *, cause: str, held: int, seconds: float) -> None:
        """Every held run has been told to stop."""
        self._say("info", "worker.drain_signalled", worker_id=worker_id, cause=cause, held=held, seconds=seconds)

    def worker_drain_abandoned(self, job: ClaimedJob) -> None:
        """A body did not end within the drain; whoever takes its claim over reports it as interrupted."""
        fix = "make the body end within DRAIN_SECONDS of ctx.signal, or raise DRAIN_SECONDS"
        self._say("warning", "worker.drain_abandoned", fix=fix, **of_job(job))

    def worker_loop_blocked(self, seconds: float, *, holder: str | None, stack: str | None, is_over: bool) -> None:
        """The event loop made no progress; `is_over` once it moves again."""
        level: Level = "warning" if is_over else "error"
        extra = {} if stack is None else {"blocked_at": stack}
        self._say(level, "worker.loop_blocked", seconds=round(seconds, 3), holder=holder, is_over=is_over, **extra)

    def loop_lag(self, seconds: float) -> None:
        """Show the worst recent lag of the event loop."""
        self.metrics.loop_lag.set(seconds)

    def drain_phase(self, phase: Phase) -> None:
        """Show how far the process's drain is."""
        self.metrics.drain_phase.set(_PHASE_NUMBER[phase])

    def store_counted(self, stats: Stats) -> None:
        """Show the store's newest counts."""
        self.metrics.show(stats)

    # --- what fails and is repeated ----------------------------------------------------------------------------------

    def heartbeat_failed(self, error: BaseException) -> None:
        """A renewal did not land; the lease runs on."""
        self._fail("heartbeat.failed", error)

    def claim_failed(self, error: BaseException) -> None:
        """A claim did not come back; reconciled and repeated after a pause."""
        self._fail("claim.failed", error)

    def claims_reconciled(self, worker_id: int, *, count: int) -> None:
        """Claims that the store held for this worker without its knowing went back, uncounted."""
        self._say("info", "claim.reconciled", worker_id=worker_id, count=count)

    def claims_held_back(self, job_id: JobId, worker_id: int) -> None:
        """A job that must run alone has waited long: until this worker is empty it claims nothing else."""
        self._say("info", "claim.held_back", job_id=str(job_id), worker_id=worker_id)

    def store_call_failed(self, verb: str, error: BaseException) -> None:
        """A call beside claim, settle and renewal did not come back; it is done again, or left to the reaper."""
        self._fail("store.call_failed", error, verb=verb)

    def store_is_volatile(self, driver: str) -> None:
        """What this process accepts ends with it."""
        fix = "set OUTLAST_DATABASE_URL to a PostgreSQL database"
        self._say("warning", "store.volatile", driver=driver, fix=fix)

    def store_is_pooled(self, *, can_listen: bool, keeps_statements: bool, missing: Sequence[str]) -> None:
        """A pooler stands in front of the store; what that costs, and what gives it back."""
        fixes = [] if can_listen else ["set OUTLAST_LISTEN_URL to the server's own address"]
        if missing:
            fixes.append("set for the role what is missing: docs/how-to/use-a-pooler.md")
        self._say(
            "warning" if fixes else "info",
            "store.pooled",
            wakeup="listen" if can_listen else "polling",
            prepared_statements="on" if keeps_statements else "off",
            missing=list(missing),
            **({"fix": "; ".join(fixes)} if fixes else {}),
        )

    def settle_failed(self, error: BaseException, *, count: int, will_retry: bool) -> None:
        """Outcomes could not be stored; repeated while the lease lasts, then left to the reaper."""
        self._fail("settle.failed", error, count=count, will_retry=will_retry)

    def settle_refused(self, job: ClaimedJob) -> None:
        """The store refused one outcome for good; it is stored as a failure instead."""
        self._say("error", "settle.refused", **of_job(job))

    def settle_left(self, job: ClaimedJob) -> None:
        """The lease ran out before an outcome could be stored; whoever takes the claim over closes the attempt."""
        self._say("error", "settle.left", **of_job(job))

    def listener_lost(self) -> None:
        """Wake-ups no longer arrive; polling carries."""
        self.metrics.show_wakeup("polling")
        self._say("warning", "listener.lost")

    def listener_restored(self) -> None:
        """Wake-ups arrive."""
        self.metrics.show_wakeup("listen")
        self._say("debug", "listener.restored")

    # --- the process -------------------------------------------------------------------------------------------------

    def loop_left(self, by: str, *, at: str = "") -> None:
        """Code of a body's ended the event loop's run, which goes on: `by` an exit, or a stop; `at` its place."""
        self._warn("loop.left", by=by, at=at)

    def cancel_refused(self, task: str) -> None:
        """A body tried to cancel a task of the worker's own."""
        self._warn("cancel.refused", task=task)

    def drain_started(self, *, cause: str, seconds: float) -> None:
        """The process has begun to leave."""
        self._say("info", "drain.started", cause=cause, seconds=seconds)

    def drain_ended(self, *, exit_code: int, seconds: float) -> None:
        """The process is about to end."""
        self._say("info", "drain.ended", exit_code=exit_code, seconds=round(seconds, 3))

    def role_failed(self, role: str, error: BaseException) -> None:
        """A part of the process died or could not close."""
        self._say("error", "role.failed", role=role, error=type(error).__name__, code=code_of(error), exc_info=error)

    def child_started(self, place: int, *, pid: int) -> None:
        """A parent has started a worker process."""
        self._say("info", "child.started", place=place, child_pid=pid)

    def child_not_started(self, place: int, error: OSError, *, again_after: float) -> None:
        """The system refused a parent another worker process; it is asked again after so many seconds."""
        self._say("warning", "child.not_started", place=place, error=error.strerror, again_after=again_after)

    def child_ended(self, place: int, *, pid: int, exit_code: int, again_after: float | None) -> None:
        """A parent's worker process has ended; `again_after` seconds it is started anew, None: it is not."""
        level: Level = "warning" if exit_code else "info"
        self._say(level, "child.ended", place=place, child_pid=pid, exit_code=exit_code, again_after=again_after)

    def process_ended(self, *, exit_code: int, why: str, abandoned: Iterable[str] = ()) -> None:
        """The process is ended at once, without its teardown."""
        names = ", ".join(abandoned)
        self._say("error", "process.ended", exit_code=exit_code, why=why, abandoned=names)

    def job_enqueued(self, *, job_id: str, job: str, queue: str, deduped: bool) -> None:
        """A job is durable."""
        self._say("debug", "job.enqueued", job_id=job_id, job=job, queue=queue, deduped=deduped)

    def request_failed(self, *, method: str, path: str, code: str, error: BaseException) -> None:
        """A request ended in a failure of our own; of a store that is away one line says enough for many requests.

        A read that was ended for its length, or a process that leaves, does what it is meant to: no trace helps.
        """
        facts: dict[str, object] = {"method": method, "path": path, "code": code}
        if isinstance(error, QueryTooSlow | Draining):
            self._warn("request.failed", level="warning", **facts)
            return
        facts["exc_info"] = error
        if isinstance(error, DriverUnavailable):
            self._warn("request.failed", level="error", **facts)
        else:
            self._say("error", "request.failed", **facts)

    # --- how it is said ----------------------------------------------------------------------------------------------

    def _fail(self, event: str, error: BaseException, **facts: object) -> None:
        """Say that a call to the store failed; a lasting outage is one line every few seconds, not one a call."""
        missed = self._throttle.admit(f"{event} {facts.get('verb', '')}")
        for tap in self._taps:
            tap(event, {"error": type(error).__name__, **facts})
        if missed is not None and self._log is not None:
            self._log.warning(event, error=type(error).__name__, code=code_of(error), also=missed, **facts)

    def _warn(self, event: str, *, level: Level = "warning", **facts: object) -> None:
        """Say what a body or a caller may cause at any rate: one line every few seconds."""
        missed = self._throttle.admit(f"{event} {level}")
        for tap in self._taps:
            tap(event, facts)
        if missed is not None and self._log is not None:
            getattr(self._log, level)(event, also=missed, **facts)

    def _is_heard(self, level: Level) -> bool:
        """Say whether anybody hears an event of this level: what happens for every job builds no facts for nobody."""
        return bool(self._taps) or (self._log is not None and self._log.is_enabled_for(_NUMBER_OF[level]))

    def _say(self, level: Level, event: str, **facts: object) -> None:
        for tap in self._taps:
            tap(event, facts)
        if self._log is not None:
            getattr(self._log, level)(event, **facts)
