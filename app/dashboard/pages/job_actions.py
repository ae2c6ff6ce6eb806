"""What can be done to one job: each is a form, and leads back to a page that shows what became of it.

Rules and refusals are those of the controls; a form that changes a row carries the version it was made for.
"""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from ...domain.edit import JobPatch
from ...domain.errors import RequestInvalid
from ...domain.job import JobId
from ...domain.outcome import CancelVerdict
from ...domain.step import RetryMode
from ..visit import PAYLOADS, WRITE, Form, Visit
from .job import job_id_of

_CANCELLED = {
    CancelVerdict.CANCELLED_BEFORE_START: "Cancelled before it started",
    CancelVerdict.CANCELLED_WHILE_WAITING: "Cancelled while it waited",
    CancelVerdict.SIGNALLED: "Cancelled while it runs: its body has been told",
    CancelVerdict.ALREADY_FINISHED: "Nothing to do: it had finished",
}


async def cancel(visit: Visit) -> Response:
    """End the job for good."""
    form, job_id = await _begun(visit)
    by = visit.acting(form)
    verdict, _ = await visit.services.jobs.cancel(
        job_id, reason=by.reason or f"cancelled by {by.actor}", tenant=visit.tenant, by=by
    )
    return visit.go(f"/jobs/{job_id}", said=_CANCELLED[verdict])


async def retry(visit: Visit) -> Response:
    """Make the job ready again: as it was recorded, from before a step, or anew."""
    form, job_id = await _begun(visit)
    mode = RetryMode.FRESH if form.one("mode") == "fresh" else RetryMode.RESUME
    await visit.services.jobs.retry(
        job_id, mode=mode, from_step=form.one("from_step") or None, tenant=visit.tenant, by=visit.acting(form)
    )
    return visit.go(f"/jobs/{job_id}", said="Ready again, with fresh budgets")


async def release(visit: Visit) -> Response:
    """Make a held job ready, its run as it is."""
    form, job_id = await _begun(visit)
    await visit.services.runs.release(job_id, tenant=visit.tenant, by=visit.acting(form))
    return visit.go(f"/jobs/{job_id}", said="Released: ready for code of any version")


async def run_now(visit: Visit) -> Response:
    """Let a delayed job start, or end the sleeps of its run."""
    form, job_id = await _begun(visit)
    verdict, _ = await visit.services.jobs.run_now(job_id, tenant=visit.tenant, by=visit.acting(form))
    return visit.go(f"/jobs/{job_id}", said=verdict.value.replace("_", " ").capitalize())


async def edit(visit: Visit) -> Response:
    """Change priority or time of a job that waits, if it is still as it was shown."""
    form, job_id = await _begun(visit)
    patch = JobPatch(priority=form.number("priority"), run_at=_instant(form, "run_at"))
    version = form.one("version")
    await visit.services.jobs.patch(
        job_id, patch, versions=frozenset({version}) if version else None, tenant=visit.tenant, by=visit.acting(form)
    )
    return visit.go(f"/jobs/{job_id}", said="Changed")


async def delete(visit: Visit) -> Response:
    """Delete a job that has ended or is held."""
    form, job_id = await _begun(visit)
    version = form.one("version")
    await visit.services.jobs.delete(
        job_id, versions=frozenset({version}) if version else None, tenant=visit.tenant, by=visit.acting(form)
    )
    return visit.go("/jobs", said=f"Deleted job …{str(job_id)[-8:]}")


async def duplicate(visit: Visit) -> Response:
    """Enqueue the work again with the input as it was or as edited; the new job is linked to this one."""
    form, job_id = await _begun(visit)
    visit.need(WRITE)
    payload = form.one("payload") or None
    if payload is not None:
        visit.need(PAYLOADS)
    view = await visit.services.jobs.duplicate(job_id, payload=payload, tenant=visit.tenant, by=visit.acting(form))
    return visit.go(f"/jobs/{view.id}", said="Enqueued as a new job, linked to the old one")


async def fork(visit: Visit) -> Response:
    """Make a new job with this one's history up to a step."""
    form, job_id = await _begun(visit)
    view = await visit.services.runs.fork(
        job_id, from_step=form.one("from_step") or None, tenant=visit.tenant, by=visit.acting(form)
    )
    return visit.go(f"/jobs/{view.id}", said="Forked: a new job with the history of the old one")


async def send_event(visit: Visit) -> Response:
    """Emit an event, most likely the one that this job's run waits for."""
    form, job_id = await _begun(visit)
    view = await visit.services.jobs.describe(job_id, tenant=visit.tenant)
    emitted = await visit.services.events.emit(
        form.one("name"),
        form.one("key"),
        form.one("payload") or "null",
        tenant=view.tenant,
        by=visit.seen.visitor.name,
    )
    return visit.go(f"/jobs/{job_id}", said=f"Sent: it ended {emitted.matched} waits")


async def _begun(visit: Visit) -> tuple[Form, JobId]:
    """Give the form sent and the job it is about, if the visitor may act on its queue, which it never changes."""
    form, job_id, visitor = await visit.form(), job_id_of(visit), visit.seen.visitor
    if visitor.queues is not None:
        visitor.check_queue((await visit.services.jobs.describe(job_id, tenant=visit.tenant)).queue)
    return form, job_id


def _instant(form: Form, name: str) -> datetime | None:
    text = form.one(name)
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise RequestInvalid(
            f"{name} is not a time", fix="write it as 2026-12-24T18:00, in UTC, or with an offset", pointer=f"/{name}"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
