"""Page figures: the server time of every page and every list beside a million jobs in every state.

Asked of the application in this process, without a network. What it would remember for a moment is read from the store
each time, as its clock leaps. Statements and templates are prepared by a round that does not count.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import replace
from itertools import count
from typing import Any

import httpx

from app.bootstrap import build_auth, build_services
from app.control.drain import DrainControl
from app.control.flow import FlowControl
from app.control.overview import OverviewControl
from app.dashboard.app import create_dashboard
from app.drivers.postgres.driver import PostgresDriver
from app.http.app import create_app
from app.lifecycle.shutdown import Shutdown
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.settings import Settings
from app.site import dashboard_services
from app.stores import build_outbox

from .bed import Bed, driver_on, raw_on
from .mixed import fill

_ROUNDS = 5
_STATES = ("ready", "delayed", "running", "suspended", "held", "done", "dead", "cancelled")
_FILTERS = (
    *(f"state={state}" for state in _STATES),
    *("tag=eu", "tag=vip", "tag=eu&tag=vip", "tag_all=eu&tag_all=vip", "tag=vip&state=dead", "tag=none"),
    *("key=order:500000", "error_code=MAILBOX", "error_code=NONE", "worker_id=3", "parent_id={job_id}"),
    *("tenant=acme", "tenant=rare", "tenant=rare&state=dead", "name=demo.rare", "name=demo.none", "queue=queue-3"),
    *("sort=created_at", "sort=run_at&state=delayed", "sort=-finished_at&state=dead", "state=dead&name=demo.rare"),
    *("count=true", "count=true&state=dead", "count=true&tag=eu", "include=payload,result", "limit=200"),
)
_LISTS = (
    *("job-types", "queues", "schedules", "workers", "deploys", "dead-letters", "outbox", "audit", "events"),
    *("bulk-operations", "limits", "slots", "stats", "stats?window=24h", "stats?window=7d"),
    *("jobs/{job_id}", "jobs/{job_id}/attempts", "jobs/{job_id}/steps", "jobs/{job_id}/timeline"),
    *("jobs/{job_id}?include=attempts,steps", "jobs/{job_id}/explain"),
)
_PAGES = (
    *("/", "/queues", "/queues/queue-1", "/schedules", "/outbox", "/types", "/events", "/audit", "/system", "/workers"),
    *("/dead", "/bulk", "/jobs", "/jobs/{job_id}", *(f"/jobs?state={state}" for state in _STATES)),
)
PATHS = (
    *(f"/ui{page}" for page in _PAGES),
    "/v1/jobs",
    *(f"/v1/jobs?{query}" for query in _FILTERS),
    *(f"/v1/{name}" for name in _LISTS),
)


async def beside_a_million(bed: Bed, *, jobs: int) -> dict[str, tuple[float, float]]:
    """Give each path's median milliseconds, and the mean CPU milliseconds of application and server together."""
    async with bed.fresh("bench_pages") as url, raw_on(url) as raw:
        await fill(raw, jobs)
        job_id = await raw.fetchval("select job_id from outlast.finished where state = 2 order by job_id desc limit 1")
        async with driver_on(url) as driver:
            times: dict[str, list[float]] = defaultdict(list)
            cpu: dict[str, float] = defaultdict(float)
            async with _browser(url, driver) as browser:
                for turn in range(_ROUNDS + 1):
                    for path in PATHS:
                        before = time.process_time() + bed.cpu_seconds()
                        times[path].append(await _time(browser, path.replace("{job_id}", str(job_id))))
                        if turn:
                            cpu[path] += time.process_time() + bed.cpu_seconds() - before
    return {path: (statistics.median(times[path][1:]) * 1e3, cpu[path] / _ROUNDS * 1e3) for path in PATHS}


async def _time(browser: httpx.AsyncClient, path: str) -> float:
    began = time.perf_counter()
    response = await browser.get(path)
    spent = time.perf_counter() - began
    if response.status_code != httpx.codes.OK:
        raise RuntimeError(f"{path} answered {response.status_code}: {response.text[:500]}")
    return spent


def _browser(url: str, driver: PostgresDriver) -> httpx.AsyncClient:
    """Give a visitor of an application with its door open, which remembers nothing."""
    leaps = count(step=3600)
    settings = Settings(database_url=url)
    telemetry = Telemetry(metrics=Metrics())
    leaving = Shutdown(drain_seconds=25, telemetry=telemetry)
    services = build_services(
        settings,
        driver,
        build_outbox(settings, driver),
        telemetry,
        auth=build_auth(settings, driver, host="127.0.0.1", is_dev=True),
        is_started=lambda: True,
        is_draining=lambda: False,
        drain=DrainControl(status=leaving.status, begin=leaving.request),
    )
    services = replace(services, flow=FlowControl(driver, monotonic=lambda: next(leaps)))
    overview = OverviewControl(driver, monotonic=lambda: next(leaps))
    pages = create_dashboard(replace(dashboard_services(driver, services, key=None), overview=overview))
    app: Any = create_app(services, pages=pages)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost:8080", headers={"Sec-Fetch-Site": "none"}
    )
