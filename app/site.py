"""Builds the pages over the services of the HTTP API. A part of the composition root: it builds and never decides."""

from __future__ import annotations

from starlette.types import ASGIApp

from .control.overview import OverviewControl
from .dashboard.app import create_dashboard
from .dashboard.door import Door
from .dashboard.services import DashboardServices
from .drivers.protocol import JobDriver
from .http.auth import read_key_file
from .http.caller import PAGES, owner_of
from .http.problems import headers_of, status_of
from .http.services import HttpServices
from .jobs.admission import wall_clock
from .settings import Settings


def build_dashboard(settings: Settings, driver: JobDriver, services: HttpServices) -> ASGIApp:
    """Build the pages over what the HTTP routes are given."""
    key = None if settings.api_key_file is None else read_key_file(settings.api_key_file)
    return create_dashboard(dashboard_services(driver, services, key=key))


def dashboard_services(driver: JobDriver, services: HttpServices, *, key: str | None) -> DashboardServices:
    """Give the pages' services: those of the HTTP routes, a door, and counts of the whole store."""
    return DashboardServices(
        jobs=services.jobs,
        runs=services.runs,
        events=services.events,
        queues=services.queues,
        outbox=services.outbox,
        purge=services.purge,
        audit=services.audit,
        bulk=services.bulk,
        schedules=services.schedules,
        keys=services.keys,
        catalogue=services.catalogue,
        fleet=services.fleet,
        flow=services.flow,
        drain=services.drain,
        deploys=services.deploys,
        doctor=services.doctor,
        overview=OverviewControl(driver),
        webhooks=services.webhooks,
        door=Door(services.auth, key=key),
        telemetry=services.telemetry,
        version=services.version,
        code_version=services.code_version,
        payload_max_bytes=services.payload_max_bytes,
        now=wall_clock,
        is_draining=services.is_draining,
        status_of=status_of,
        headers_of=headers_of,
        count=lambda visitor, path: services.rate.take(owner_of(visitor), PAGES + path),
    )
