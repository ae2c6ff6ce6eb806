"""Builds the pages over the services of the HTTP API. A part of the composition root: it builds and never decides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from starlette.types import ASGIApp

from .control.overview import OverviewControl
from .dashboard.app import create_dashboard
from .dashboard.door import Door
from .dashboard.services import DashboardServices
from .drivers.capabilities import pool_of
from .drivers.protocol import JobDriver
from .http.app import openapi_document
from .http.auth import read_key_file
from .http.caller import PAGES, owner_of
from .http.problems import headers_of, status_of
from .http.services import HttpServices
from .jobs.admission import wall_clock
from .settings import Settings, shown


def build_dashboard(
    settings: Settings, driver: JobDriver, services: HttpServices, *, overview: OverviewControl | None = None
) -> ASGIApp:
    """Build the pages over what the HTTP routes are given; `overview` is what else of the process counts the store."""
    key = None if settings.api_key_file is None else read_key_file(settings.api_key_file)
    return create_dashboard(dashboard_services(driver, services, key=key, config=shown(settings), overview=overview))


def dashboard_services(
    driver: JobDriver,
    services: HttpServices,
    *,
    key: str | None,
    config: Sequence[tuple[str, str, bool]] = (),
    overview: OverviewControl | None = None,
) -> DashboardServices:
    """Give the pages' services: those of the HTTP routes, a door, and counts of the whole store."""

    def pool() -> dict[str, int] | None:
        use = pool_of(driver)
        return None if use is None else asdict(use)

    return DashboardServices(
        jobs=services.jobs,
        runs=services.runs,
        events=services.events,
        queues=services.queues,
        outbox=services.outbox,
        purge=services.purge,
        audit=services.audit,
        actors=services.actors,
        bulk=services.bulk,
        schedules=services.schedules,
        keys=services.keys,
        catalogue=services.catalogue,
        fleet=services.fleet,
        flow=services.flow,
        drain=services.drain,
        deploys=services.deploys,
        doctor=services.doctor,
        overview=overview or OverviewControl(driver),
        webhooks=services.webhooks,
        door=Door(services.auth, key=key),
        describe=lambda: json.loads(openapi_document()),
        telemetry=services.telemetry,
        version=services.version,
        code_version=services.code_version,
        payload_max_bytes=services.payload_max_bytes,
        config=config,
        pool=pool,
        now=wall_clock,
        is_draining=services.is_draining,
        status_of=status_of,
        headers_of=headers_of,
        count=lambda visitor, path: services.rate.take(owner_of(visitor), PAGES + path),
    )
