"""Reasons that a job's own state gives: it has ended, runs, is held, or waits for a time, an event or a child.

Each is a function of the situation. Called by `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import assert_never

from .job import JobId
from .reason import Reason, ReasonCode, Situation
from .snapshot import JobView
from .state import State
from .step import StepKind, WaitView

# By why a job waits for a time; what they are called in `state_reason`.
_DELAYS = {
    "scheduled": ReasonCode.DELAYED,
    "retry": ReasonCode.RETRY,
    "snooze": ReasonCode.SNOOZED,
    "interrupted": ReasonCode.INTERRUPTED,
}


def of_state(situation: Situation) -> Iterator[Reason]:
    """Give what the job's state says; nothing for one that is ready."""
    job = situation.job
    match job.state:
        case State.RUNNING:
            yield _running(situation)
        case State.DONE | State.DEAD | State.CANCELLED:
            yield _ended(job)
        case State.HELD:
            yield _held(job)
        case State.DELAYED:
            yield _delayed(situation)
        case State.SUSPENDED:
            yield from _suspended(situation)
        case State.READY:
            pass
        case _:
            assert_never(job.state)


def instant(at: datetime | None) -> str:
    """Give a time as people read it: UTC, to the second."""
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _running(situation: Situation) -> Reason:
    job, claim = situation.job, situation.job.claim
    worker_id = None if claim is None else claim.worker_id
    host = next((worker.host for worker in situation.workers if worker.id == worker_id), None)
    lease_until = None if claim is None else claim.lease_until
    is_lost = lease_until is None or lease_until <= situation.at
    text = f"it runs on worker {worker_id} ({host or 'gone'}) since {instant(job.started_at)}"
    if is_lost:
        text += ", whose lease has passed: a worker takes the job over at its next sweep"
    return Reason(
        code=ReasonCode.RUNNING,
        text=text,
        facts={
            "worker_id": None if worker_id is None else str(worker_id),
            "host": host,
            "since": job.started_at,
            "lease_until": lease_until,
            "heartbeat_age_ms": None if claim is None else claim.heartbeat_age_ms,
        },
        repair="start a worker: any one takes it over within its lease and a sweep" if is_lost else None,
    )


def _ended(job: JobView) -> Reason:
    facts: dict[str, object] = {"finished_at": job.finished_at}
    if job.state is State.DONE:
        return Reason(
            code=ReasonCode.DONE,
            text=f"it is done since {instant(job.finished_at)}",
            facts=facts,
            repair=f"`outlast jobs fork {job.id}` makes a new job of it",
        )
    facts["reason"] = job.state_reason
    again = f"`outlast jobs retry {job.id}` runs it again with fresh budgets"
    if job.state is State.CANCELLED:
        text = f"it was cancelled at {instant(job.finished_at)}: {job.state_reason or 'no reason given'}"
        return Reason(code=ReasonCode.CANCELLED, text=text, facts=facts, repair=again)
    error = _error(job)
    because = f"; its last error is {error}" if error else ""
    return Reason(
        code=ReasonCode.DEAD,
        text=f"it is a dead letter since {instant(job.finished_at)} ({job.state_reason}){because}",
        facts=facts | {"error": error},
        repair=f"mend the cause (`outlast jobs show {job.id}`), then {again}",
    )


def _held(job: JobView) -> Reason:
    return Reason(
        code=ReasonCode.HELD,
        text=f"it is held: {job.state_reason}",
        facts={"reason": job.state_reason},
        repair=f"run the code that recorded it again, or `outlast jobs release {job.id}` for code that fits, or"
        f" `outlast jobs retry {job.id} --fresh` to begin anew",
    )


def _delayed(situation: Situation) -> Reason:
    job = situation.job
    if job.run_at is not None and job.run_at <= situation.at:
        return Reason(
            code=ReasonCode.DUE,
            text=f"it is due since {instant(job.run_at)}, and no worker has made it ready yet",
            facts={"since": job.run_at},
            repair=_LOOKS,
        )
    code = _DELAYS.get(job.state_reason or "", ReasonCode.DELAYED)
    facts: dict[str, object] = {"until": job.run_at}
    when = instant(job.run_at)
    if code is not ReasonCode.RETRY:
        return Reason(code=code, text=_DELAY_TEXTS[code].format(when=when), facts=facts)
    error, counters = _error(job), job.counters
    facts |= {"attempt": counters.attempt, "max_attempts": job.max_attempts, "error": error}
    text = f"attempt {counters.attempt} of {job.max_attempts} failed, the next is due at {when}"
    return Reason(code=code, text=text + (f"; the error was {error}" if error else ""), facts=facts)


_LOOKS = "a live worker of any queue does so within seconds; start one if there is none"
_DELAY_TEXTS = {
    ReasonCode.DELAYED: "it is delayed until {when}",
    ReasonCode.SNOOZED: "its handler put it off until {when}",
    ReasonCode.INTERRUPTED: "a drain cut it, and it asked to go on at {when}",
}


def _suspended(situation: Situation) -> Iterator[Reason]:
    # A call whose child failed stays among the waits of a run that goes on without it.
    waits = [wait for wait in situation.job.waiting_on if not wait.has_failed]
    still = [wait for wait in waits if wait.due_at is None or wait.due_at > situation.at]
    # One wait that is over is enough: the run goes on with it.
    if len(still) < len(waits) or not waits:
        yield Reason(
            code=ReasonCode.WOKEN,
            text="what its run waited for is over, and no worker has made it ready yet",
            repair=_LOOKS,
        )
    yield from map(_wait, still)


def _wait(wait: WaitView) -> Reason:
    facts: dict[str, object] = {"step": wait.name, "since": wait.began_at}
    since = f"since {instant(wait.began_at)}"
    match wait.kind:
        case StepKind.EVENT:
            bound = "" if wait.due_at is None else f", until {instant(wait.due_at)} at most"
            return Reason(
                code=ReasonCode.WAITS_FOR_EVENT,
                text=f"its step {wait.name!r} waits for the event {wait.event!r}, key {wait.key!r}, {since}{bound}",
                facts=facts | {"until": wait.due_at, "event": wait.event, "key": wait.key},
                repair="emit the event with POST /v1/events or `outlast events emit`",
            )
        case StepKind.CALL:
            return Reason(
                code=ReasonCode.WAITS_FOR_CHILD,
                text=f"its step {wait.name!r} waits for the job {wait.child_id} {since}",
                facts=facts | {"child_id": _text(wait.child_id)},
                repair=f"`outlast jobs explain {wait.child_id}` says why that one is not done",
            )
        case _:
            text = f"its step {wait.name!r} sleeps until {instant(wait.due_at)}, {since}"
            return Reason(code=ReasonCode.SLEEPS, text=text, facts=facts | {"until": wait.due_at})


def _error(job: JobView) -> str | None:
    """Give the last error in one line; its message may hold anything, and is cut."""
    if job.error is None:
        return None
    message = " ".join(job.error.message.split())
    return f"{job.error.type}: {message[:_ERROR_SHOWN]}" if message else job.error.type


_ERROR_SHOWN = 200


def _text(job_id: JobId | None) -> str | None:
    return None if job_id is None else str(job_id)
