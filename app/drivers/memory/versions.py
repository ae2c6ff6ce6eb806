"""Jobs that the code at hand does not fit: handed back to the code that does, held until it comes, or dead."""

from __future__ import annotations

from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.errors import JobStateConflict, PayloadInvalid
from ...domain.job import LANE_RESUMED, JobId
from ...domain.ledger import CAUSE_HANDED_BACK, CAUSE_HELD, cause_of
from ...domain.outcome import HAND_BACK, KIND_OF, DeadLettered, ErrorInfo, Held, OutcomeKind
from ...domain.state import DeadReason, State
from .attempts import End
from .audit import keep
from .cancel import envelope_for
from .rows import Finished, HeldBack, Pin, Ready, Running, Token
from .store import Store
from .waking import wake_parents


def put_aside(store: Store, job_id: JobId, running: Running, outcome: Held, now: datetime) -> tuple[End, Token]:
    """Give how an attempt is recorded whose code does not fit, and where its job goes."""
    version = _fitting(store, job_id, running, outcome)
    counters = running.counters.uncounted()
    if version is not None and _is_served(store, job_id, version, now):
        pin = Pin(version=version, until=now + HAND_BACK, reason=outcome.reason, or_dead=outcome.or_dead)
        rank = store.rank(job_id, LANE_RESUMED)
        ready = Ready(counters=counters, rank=rank, seq=store.next_seq(), since=now, pin=pin)
        return End(outcome=OutcomeKind.HELD, cause=CAUSE_HANDED_BACK, error=outcome.error), ready
    if outcome.or_dead:
        return _dead(running, outcome, now)
    held = HeldBack(counters=counters, reason=outcome.reason, held_at=now, version=outcome.version)
    return End(outcome=OutcomeKind.HELD, cause=CAUSE_HELD, error=outcome.error), held


def release_held(store: Store, job_id: JobId, *, tenant: str | None, audit: AuditEntry | None) -> None:
    """Make a held job ready, for code of any version; see `RunStore.release_held`.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
        JobStateConflict: the job is not held.
    """
    with store.statement(audit) as now:
        envelope_for(store, job_id, tenant)
        match store.tokens[job_id]:
            case HeldBack(counters=counters):
                store.resume(job_id, counters)
                keep(store, audit, now)
            case _:
                state = store.state(job_id)
                raise JobStateConflict(
                    f"job {job_id} is {state}; only held jobs can be released",
                    fix="nothing has to be released; look at the job's state again",
                    state=state,
                )


def release_due(store: Store, batch: int) -> int:
    """Move jobs that wait for other code, by id; see `RunStore.release_due`."""
    with store.statement() as now:
        moves = [(job_id, token) for job_id in sorted(store.tokens) if (token := _moved(store, job_id, now))][:batch]
        for job_id, token in moves:
            store.place(job_id, token)
        wake_parents(store, [job_id for job_id, token in moves if isinstance(token, Finished)], now)
        return len(moves)


def must_release(store: Store, now: datetime) -> bool:
    """Say whether `release_due` would find something to do; for a caller in a statement."""
    return any(_moved(store, job_id, now) is not None for job_id in store.tokens)


def _moved(store: Store, job_id: JobId, now: datetime) -> Token | None:
    """Give where a job that waits for other code goes now, None when it waits on."""
    match store.tokens[job_id]:
        case HeldBack(counters=counters, reason=reason, version=str() as version) as held:
            if not _is_served(store, job_id, version, now, since=held.held_at):
                return None
            pin = Pin(version=version, until=now + HAND_BACK, reason=reason)
            rank = store.rank(job_id, LANE_RESUMED)
            return Ready(counters=counters, rank=rank, seq=store.next_seq(), since=now, pin=pin)
        case Ready(counters=counters, pin=Pin() as pin):
            if pin.until > now and _is_served(store, job_id, pin.version, now):
                return None
            if pin.or_dead:
                return Finished(counters=counters, state=State.DEAD, finished_at=now, reason=DeadReason.TERMINAL)
            return HeldBack(counters=counters, reason=pin.reason, held_at=now, version=pin.version)
        case _:
            return None


def _fitting(store: Store, job_id: JobId, running: Running, outcome: Held) -> str | None:
    """Give the version that the job is for: the one named, or the newest of its type if the worker's is another."""
    if not outcome.or_dead:
        return outcome.version
    published = store.job_types.get(store.envelopes[job_id].job.name)
    own = store.workers[running.worker_id].about.code_version
    return None if published is None or published.code_version == own else published.code_version


def _is_served(store: Store, job_id: JobId, version: str, now: datetime, *, since: datetime | None = None) -> bool:
    """Say whether a worker of that code will take the job: one that came `since` then, where that is asked for."""
    return any(
        worker.serves(store.queue_of(job_id), version, now) and (since is None or worker.started_at >= since)
        for worker in store.workers.values()
    )


def _dead(running: Running, outcome: Held, now: datetime) -> tuple[End, Token]:
    error = outcome.error or ErrorInfo(type=PayloadInvalid.__name__, message=outcome.reason, code=PayloadInvalid.code)
    dead = DeadLettered(error=error, reason=DeadReason.TERMINAL)
    end = End(outcome=KIND_OF[DeadLettered], cause=cause_of(dead), error=error)
    return end, running.ended(State.DEAD, running.counters.failed(), now, reason=dead.reason)
