"""What operators change of a job that waits, or has ended: run now, patch, delete; and a job that they make."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.edit import JobPatch, RunNowVerdict
from ...domain.job import Enqueued, JobId, NewJob, rank_of
from ...domain.state import State
from ...domain.step import StepKind
from ..actions import cannot_run_now, refuse_delete, refuse_edit, refuse_stale
from ..protocol import Wake
from .audit import keep
from .cancel import drop_waits, envelope_for
from .enqueue import enqueue_at
from .rows import Dormant, Finished, HeldBack, Ready, Running, Wait, Waiting
from .store import Store
from .view import view as view_of
from .waking import end_wait, wake_parents


def run_now(store: Store, job_id: JobId, *, tenant: str | None, audit: AuditEntry | None) -> RunNowVerdict:
    """Let a job start before its time, or end the sleeps of its run; see `ActionStore.run_now`.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
        JobStateConflict: the job waits for no time.
    """
    with store.statement(audit) as now:
        envelope_for(store, job_id, tenant)
        verdict = _run_now(store, job_id, now)
        if audit is not None:
            is_change = verdict in {RunNowVerdict.MADE_READY, RunNowVerdict.SLEEP_ENDED}
            keep(store, audit.came_to(verdict.value if is_change else UNCHANGED, verdict=verdict.value), now)
        return verdict


def _run_now(store: Store, job_id: JobId, now: datetime) -> RunNowVerdict:
    match store.tokens[job_id]:
        case Waiting() as waiting:
            store.make_ready(job_id, waiting.counters, rank=waiting.rank, pin=waiting.pin)
            envelope = store.envelopes[job_id]
            if envelope.run_at is not None and envelope.run_at > now:
                store.envelopes[job_id] = replace(envelope, run_at=now)
            return RunNowVerdict.MADE_READY
        case Ready():
            return RunNowVerdict.ALREADY_READY
        case Running():
            return RunNowVerdict.ALREADY_RUNNING
        case Dormant():
            sleeps = [wait for wait in store.runs.waits_of(job_id) if wait.kind is StepKind.SLEEP]
            for wait in sleeps:
                end_wait(store, job_id, wait, now)
            if sleeps:
                return RunNowVerdict.SLEEP_ENDED
            raise cannot_run_now(job_id, State.SUSPENDED)
        case HeldBack() | Finished():
            raise cannot_run_now(job_id, store.state(job_id))


def patch(
    store: Store,
    job_id: JobId,
    patch: JobPatch,
    *,
    versions: frozenset[str] | None,
    tenant: str | None,
    audit: AuditEntry | None,
) -> None:
    """Change fields of a job that waits; see `ActionStore.patch`.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
        PreconditionFailed: it is in none of the versions.
        JobStateConflict: it cannot be changed so.
    """
    with store.statement(audit) as now:
        envelope = envelope_for(store, job_id, tenant)
        view = view_of(store, envelope, now, is_full=True)
        refuse_stale(view, versions)
        refuse_edit(view, patch)
        before, after = patch.before(view), patch.after()
        if before != after:
            _change(store, job_id, patch, now)
        if audit is not None:
            keep(store, audit.came_to(audit.outcome if before != after else UNCHANGED, before=before, after=after), now)


def _change(store: Store, job_id: JobId, patch: JobPatch, now: datetime) -> None:
    envelope = store.envelopes[job_id]
    job = envelope.job
    job = replace(
        job,
        priority=job.priority if patch.priority is None else patch.priority,
        tags=job.tags if patch.tags is None else patch.tags,
        max_attempts=job.max_attempts if patch.max_attempts is None else patch.max_attempts,
    )
    run_at = envelope.run_at if patch.run_at is None else patch.run_at
    store.envelopes[job_id] = replace(envelope, job=job, run_at=run_at)
    match store.tokens[job_id]:
        case Ready() as ready:
            _change_ready(store, job_id, ready, patch, now)
        case Waiting() as waiting:
            _change_waiting(store, job_id, waiting, patch, now)
        case Dormant() as dormant:
            store.tokens[job_id] = replace(dormant, rank=_reranked(dormant.rank, job))
        case _:  # a held job gets its place when it is released
            pass


def _change_ready(store: Store, job_id: JobId, ready: Ready, patch: JobPatch, now: datetime) -> None:
    rank = _reranked(ready.rank, store.envelopes[job_id].job)
    if patch.run_at is not None and patch.run_at > now:
        waiting = Waiting(counters=ready.counters, rank=rank, due_at=patch.run_at, reason=Wait.SCHEDULED, pin=ready.pin)
        store.place(job_id, waiting)
    elif rank != ready.rank:
        store.rerank(job_id, ready, rank)


def _change_waiting(store: Store, job_id: JobId, waiting: Waiting, patch: JobPatch, now: datetime) -> None:
    rank = _reranked(waiting.rank, store.envelopes[job_id].job)
    if patch.run_at is not None and patch.run_at <= now:
        store.make_ready(job_id, waiting.counters, rank=rank, pin=waiting.pin)
    else:
        store.tokens[job_id] = replace(waiting, rank=rank, due_at=patch.run_at or waiting.due_at)
        store.bell.add(Wake.DELAYED)


def _reranked(rank: int, job: NewJob) -> int:
    """Give a place of the job's priority now, in the lane that it had."""
    return rank_of(job.priority, rank % 2)


def delete(
    store: Store, job_id: JobId, *, versions: frozenset[str] | None, tenant: str | None, audit: AuditEntry | None
) -> None:
    """Delete a job that has ended or is held; see `ActionStore.delete`.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
        PreconditionFailed: it is in none of the versions.
        JobStateConflict: it may still run.
    """
    with store.statement(audit) as now:
        envelope = envelope_for(store, job_id, tenant)
        view = view_of(store, envelope, now, is_full=True)
        refuse_stale(view, versions)
        refuse_delete(view)
        wake_parents(store, [job_id], now)
        if view.state is State.HELD:
            drop_waits(store, job_id, now)
            store.free_key(job_id, now)
            store.bell.add(Wake.FINISHED)
        store.forget(job_id)
        wake_parents(store, [job_id], now)
        keep(store, None if audit is None else audit.of_deleted(view), now)


def place(store: Store, job: NewJob, *, audit: AuditEntry) -> Enqueued:
    """Store a job with the row of the audit; see `ActionStore.place`. Raises what `enqueue` raises."""
    with store.statement(audit) as now:
        answer = enqueue_at(store, now, job)
        keep(store, audit, now)
        return answer
