"""Fork: a new job that begins with what another's run has recorded up to a step."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from ...domain.audit import AuditEntry
from ...domain.job import Enqueued, JobId, NewJob, RunId
from ...domain.sealed import Recode
from ...domain.step import OWN_KINDS
from .audit import keep
from .cancel import envelope_for
from .enqueue import enqueue_at
from .run_rows import Step
from .store import Store
from .truncate import kept_before, steps_from


def fork(
    store: Store,
    job_id: JobId,
    *,
    new_id: JobId,
    from_step: str | None,
    tenant: str | None,
    audit: AuditEntry | None,
    recode: Recode | None = None,
) -> Enqueued:
    """Make a new job with a job's history; see `RunStore.fork`.

    The time it was to run at, its start limit and its deadline are left behind: they belonged to the first life.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
        NotFound: the run has not recorded the step.
        PayloadUnreadable: `recode` cannot read what is to be copied.
    """
    with store.statement(audit) as now:
        envelope = envelope_for(store, job_id, tenant)
        if new_id in store.envelopes:
            return enqueue_at(store, now, _job(envelope.job, new_id), is_part=True)
        kept = store.runs.steps_of(envelope.run_id)
        dropped = [] if from_step is None else steps_from(store, envelope, from_step)
        kept = kept[: len(kept) - len(dropped)]
        failed = kept_before(store, envelope, next(iter(dropped), None))
        copy = _job(envelope.job, new_id)
        if recode is not None:
            copy = replace(copy, payload=recode.payload(copy.payload, job_id, new_id))
            kept = [_recoded(step, recode, job_id, new_id) for step in kept]
        answer = enqueue_at(store, now, copy, is_part=True)
        run_id = RunId(
            uuid4()
        )  # a first claim of a run that is its job's own finds nothing recorded, and need not look
        store.envelopes[new_id] = replace(store.envelopes[new_id], run_id=run_id, events_from=envelope.events_from)
        store.runs.steps[run_id] = {step.view.name: _copy(store, step) for step in kept}
        store.runs.waits.update({new_id: {wait.name: wait for wait in failed}} if failed else {})
        keep(store, audit, now)
        return replace(answer, run_id=run_id)


def _job(job: NewJob, new_id: JobId) -> NewJob:
    return replace(
        job,
        id=new_id,
        key=None,
        dedupe_for=None,
        run_at=None,
        delay=None,
        max_queue_time=None,
        deadline=None,
        source_id=None,
        staged_at=None,
        callback=None,
        parent_id=job.id,
    )


def _recoded(step: Step, recode: Recode, was: JobId, now: JobId) -> Step:
    view = step.view
    if view.value is None or view.kind not in OWN_KINDS:
        return step
    return replace(step, view=replace(view, value=recode.value(view.value, was, now, view.name)))


def _copy(store: Store, step: Step) -> Step:
    return replace(step, view=replace(step.view, seq=store.runs.next_seq()))
