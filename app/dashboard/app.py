"""Every page of the dashboard, where it is and which scope it needs. Called by the composition root."""

from __future__ import annotations

from starlette.types import ASGIApp

from .pages import (
    audit,
    bulk,
    dead,
    entry,
    events,
    job,
    job_actions,
    job_types,
    jobs,
    keys,
    outbox,
    overview,
    queues,
    schedules,
    system,
    webhooks,
    workers,
)
from .pages.reference import reference_pages
from .services import DashboardServices
from .site import Anyone, At, Site
from .stream import Streams, stream_page
from .visit import ADMIN, OPERATE, PAYLOADS, READ, WRITE

PLACES: tuple[At, ...] = (
    At(path="/login", page=entry.login_page, needs=Anyone.STRANGER),
    At(path="/login", page=entry.login, needs=Anyone.STRANGER, acts=True),
    At(path="/logout", page=entry.logout, needs=Anyone.SIGNED_IN, acts=True),
    At(path="/theme", page=entry.theme, needs=Anyone.SIGNED_IN, acts=True),
    At(path="/", page=overview.page, needs=READ),
    At(path="/queues", page=queues.page, needs=READ),
    At(path="/queues/{queue}", page=queues.one, needs=READ),
    At(path="/queues/{queue}/pause", page=queues.pause, needs=OPERATE, acts=True),
    At(path="/queues/{queue}/resume", page=queues.resume, needs=OPERATE, acts=True),
    At(path="/queues/{queue}/limit", page=queues.limit, needs=OPERATE, acts=True),
    At(path="/schedules", page=schedules.page, needs=READ),
    At(path="/schedules/{name}", page=schedules.one, needs=READ),
    At(path="/schedules/{name}/fire", page=schedules.fire, needs=OPERATE, acts=True, about="a schedule"),
    At(path="/schedules/{name}/pause", page=schedules.pause, needs=OPERATE, acts=True, about="a schedule"),
    At(path="/schedules/{name}/resume", page=schedules.resume, needs=OPERATE, acts=True, about="a schedule"),
    At(path="/outbox", page=outbox.page, needs=READ),
    At(path="/outbox/replay", page=outbox.replay, needs=OPERATE, acts=True, about="the outbox"),
    At(path="/types", page=job_types.page, needs=READ),
    At(path="/types/{name}", page=job_types.one, needs=READ),
    At(path="/types/{name}/enqueue", page=job_types.enqueue, needs=WRITE, acts=True),
    At(path="/events", page=events.page, needs=READ),
    At(path="/events", page=events.emit, needs=WRITE, acts=True, about="an event"),
    At(path="/webhooks", page=webhooks.page, needs=OPERATE, about="a webhook"),
    At(path="/webhooks", page=webhooks.make, needs=ADMIN, acts=True, about="a webhook"),
    At(path="/webhooks/{webhook_id}", page=webhooks.one, needs=OPERATE, about="a webhook"),
    At(path="/webhooks/{webhook_id}/rotate", page=webhooks.rotate, needs=ADMIN, acts=True, about="a webhook"),
    At(path="/webhooks/{webhook_id}/disable", page=webhooks.disable, needs=ADMIN, acts=True, about="a webhook"),
    At(path="/webhooks/{webhook_id}/enable", page=webhooks.enable, needs=ADMIN, acts=True, about="a webhook"),
    At(path="/webhooks/{webhook_id}/delete", page=webhooks.delete, needs=ADMIN, acts=True, about="a webhook"),
    At(path="/webhooks/{webhook_id}/resend", page=webhooks.resend, needs=OPERATE, acts=True, about="a webhook"),
    At(path="/audit", page=audit.page, needs=OPERATE),
    At(path="/keys", page=keys.page, needs=ADMIN),
    At(path="/keys", page=keys.create, needs=ADMIN, acts=True, about="an API key"),
    At(path="/keys/{key_id}", page=keys.one, needs=ADMIN),
    At(path="/keys/{key_id}/rotate", page=keys.rotate, needs=ADMIN, acts=True, about="an API key"),
    At(path="/keys/{key_id}/revoke", page=keys.revoke, needs=ADMIN, acts=True, about="an API key"),
    At(path="/system", page=system.page, needs=OPERATE),
    At(path="/system/raw", page=system.raw, needs=OPERATE),
    At(path="/workers", page=workers.page, needs=READ),
    At(path="/workers/{worker_id}/drain", page=workers.drain, needs=OPERATE, acts=True, about="a process"),
    At(path="/dead", page=dead.page, needs=READ),
    At(path="/dead/purge", page=dead.purge, needs=OPERATE, acts=True, about="all dead letters of a tenant"),
    At(path="/jobs", page=jobs.page, needs=READ),
    At(path="/jobs.file", page=jobs.export, needs=READ),
    At(path="/columns", page=jobs.columns, needs=Anyone.SIGNED_IN, acts=True),
    At(path="/bulk", page=bulk.page, needs=READ),
    At(path="/bulk", page=bulk.make, needs=OPERATE, acts=True),
    At(path="/bulk/confirm", page=bulk.confirm, needs=OPERATE, acts=True),
    At(path="/bulk/{bulk_id}", page=bulk.one, needs=READ),
    At(path="/bulk/{bulk_id}/abort", page=bulk.abort, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}", page=job.page, needs=READ),
    At(path="/jobs/{job_id}/raw", page=job.raw, needs=READ),
    At(path="/jobs/{job_id}/reveal", page=job.reveal, needs=PAYLOADS, acts=True),
    At(path="/jobs/{job_id}/cancel", page=job_actions.cancel, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/retry", page=job_actions.retry, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/release", page=job_actions.release, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/run-now", page=job_actions.run_now, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/edit", page=job_actions.edit, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/delete", page=job_actions.delete, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/duplicate", page=job_actions.duplicate, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/fork", page=job_actions.fork, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/event", page=job_actions.send_event, needs=WRITE, acts=True, about="an event"),
)


def create_dashboard(services: DashboardServices) -> ASGIApp:
    """Build the pages over their services."""
    live = At(path="/stream", page=stream_page(Streams()), needs=READ)
    listed, described, document = reference_pages(services.describe)
    docs = (
        At(path="/docs", page=listed, needs=Anyone.SIGNED_IN),
        At(path="/docs/openapi.json", page=document, needs=Anyone.SIGNED_IN),
        At(path="/docs/{operation}", page=described, needs=Anyone.SIGNED_IN),
    )
    return Site(services, (*PLACES, *docs, live)).app()
