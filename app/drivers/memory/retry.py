"""Retry: an operator gives an ended or held job its budgets back and makes it ready, its run as asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.errors import JobDuplicate, JobStateConflict
from ...domain.job import JobId
from ...domain.state import RETRYABLE, State
from ...domain.step import RetryMode
from .audit import keep
from .cancel import envelope_for
from .rows import Envelope, Key
from .store import Store
from .truncate import begin_anew, drop_steps, steps_from


def retry(
    store: Store,
    job_id: JobId,
    *,
    mode: RetryMode,
    from_step: str | None,
    tenant: str | None,
    audit: AuditEntry | None,
) -> None:
    """Make a job ready again; see `JobDriver.retry`.

    The time it was to run at, its start limit and its deadline are over with the life they belonged to.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
        JobStateConflict: the job is neither dead nor cancelled, or held and its run was to go on as it is.
        NotFound: the run has not recorded the step.
        JobDuplicate: another job holds its key.
        RequestInvalid: a step was named for a run that begins anew.
    """
    mode.refuse_step(from_step)
    with store.statement(audit) as now:
        envelope = envelope_for(store, job_id, tenant)
        _refuse_state(store, job_id, goes_on=mode is RetryMode.RESUME and from_step is None)
        dropped = [] if from_step is None else steps_from(store, envelope, from_step)
        _take_key(store, envelope, now)
        if mode is RetryMode.FRESH:
            envelope = begin_anew(store, envelope, now)
        elif from_step is not None:
            drop_steps(store, envelope, dropped, now)
        store.envelopes[job_id] = replace(envelope, run_at=None, start_by=None, deadline_at=None)
        store.mark(job_id)
        store.make_ready(job_id, store.tokens[job_id].counters.retried_by_operator(), rank=store.rank(job_id))
        keep(store, audit, now)


def _refuse_state(store: Store, job_id: JobId, *, goes_on: bool) -> None:
    state = store.state(job_id)
    if state is State.HELD and goes_on:
        raise JobStateConflict(
            f"job {job_id} is held: its run does not fit the code",
            fix="retry it fresh or from a step, or release it",
            state=state,
        )
    if state not in RETRYABLE | {State.HELD}:
        raise JobStateConflict(
            f"job {job_id} is {state}; only dead, cancelled and held jobs can be retried",
            fix="wait until it has ended, or enqueue a new job",
            state=state,
        )


def _take_key(store: Store, envelope: Envelope, now: datetime) -> None:
    job = envelope.job
    if job.key_hash is None:
        return
    holder = store.keys.get(job.key_hash)
    if holder is not None and holder.job_id == job.id:
        store.keys[job.key_hash] = replace(holder, is_ended=False)
        return
    if holder is not None and holder.is_taken(now):
        raise JobDuplicate(
            f"the key {job.key!r} of {job.name} is held by job {holder.job_id}",
            fix="use that job, or wait until it has ended",
            existing_id=holder.job_id,
        )
    store.keys[job.key_hash] = Key(job_id=job.id, fingerprint=job.fingerprint, expires_at=None)
