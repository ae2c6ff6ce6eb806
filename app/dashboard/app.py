"""Every page of the dashboard, where it is and which scope it needs. Called by the composition root."""

from __future__ import annotations

from starlette.types import ASGIApp

from .pages import bulk, dead, entry, job, job_actions, jobs, overview, workers
from .services import DashboardServices
from .site import OPEN, At, Site
from .stream import Streams, stream_page
from .visit import OPERATE, READ, WRITE

PLACES: tuple[At, ...] = (
    At(path="/login", page=entry.login_page, needs=OPEN),
    At(path="/login", page=entry.login, needs=OPEN, acts=True),
    At(path="/logout", page=entry.logout, needs=READ, acts=True),
    At(path="/theme", page=entry.theme, needs=READ, acts=True),
    At(path="/", page=overview.page, needs=READ),
    At(path="/workers", page=workers.page, needs=READ),
    At(path="/workers/{worker_id}/drain", page=workers.drain, needs=OPERATE, acts=True),
    At(path="/dead", page=dead.page, needs=READ),
    At(path="/dead/purge", page=dead.purge, needs=OPERATE, acts=True),
    At(path="/jobs", page=jobs.page, needs=READ),
    At(path="/bulk", page=bulk.page, needs=READ),
    At(path="/bulk", page=bulk.make, needs=OPERATE, acts=True),
    At(path="/bulk/confirm", page=bulk.confirm, needs=OPERATE, acts=True),
    At(path="/bulk/{bulk_id}", page=bulk.one, needs=READ),
    At(path="/bulk/{bulk_id}/abort", page=bulk.abort, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}", page=job.page, needs=READ),
    At(path="/jobs/{job_id}/raw", page=job.raw, needs=READ),
    At(path="/jobs/{job_id}/cancel", page=job_actions.cancel, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/retry", page=job_actions.retry, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/release", page=job_actions.release, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/run-now", page=job_actions.run_now, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/edit", page=job_actions.edit, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/delete", page=job_actions.delete, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/duplicate", page=job_actions.duplicate, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/fork", page=job_actions.fork, needs=OPERATE, acts=True),
    At(path="/jobs/{job_id}/event", page=job_actions.send_event, needs=WRITE, acts=True),
)


def create_dashboard(services: DashboardServices) -> ASGIApp:
    """Build the pages over their services."""
    live = At(path="/stream", page=stream_page(Streams()), needs=READ)
    return Site(services, (*PLACES, live)).app()
