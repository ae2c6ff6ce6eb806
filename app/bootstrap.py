"""The composition root: settings become a driver, a registry, controls and an ASGI application.

It builds and never decides: what a part does stands in the part. `process` wires what is built here into the roles of
one process; the command line and `main` call it for everything else. The web framework is loaded by who serves with it
alone: that halves the start of workers and commands.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from secrets import SystemRandom
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from . import __version__
from .control.actors import Actors
from .control.audit import AuditControl
from .control.bulk import BulkControl
from .control.catalogue import TypeCatalogue
from .control.deploys import DeployControl
from .control.doctor.doctor import Doctor
from .control.doctor.finding import Surroundings
from .control.doctor.surroundings import look_at_modules, look_at_port
from .control.drain import DrainControl
from .control.events import EventControl
from .control.fleet import FleetControl
from .control.flow import FlowControl
from .control.guard import Guard
from .control.jobs import JobControl
from .control.keys import KeyControl
from .control.limits import LimitControl
from .control.outbox import OutboxControl
from .control.purge import PurgeControl
from .control.queues import QueueControl
from .control.refusals import Refusals
from .control.requests import RequestControl
from .control.runs import RunControl
from .control.schedules import ScheduleControl
from .control.staged import StagedIds
from .control.streams import JobStreams
from .control.topics import TopicStreams
from .control.waiting import ResultWaiters
from .domain.errors import NotImplementedYet
from .domain.json_text import JsonLimits
from .domain.outbox import RelayId
from .domain.retention import Retention
from .drivers.api_keys import keys_of
from .drivers.bulk import bulk_of
from .drivers.memory.clock import SystemClock
from .drivers.outbox import OutboxStore, outbox_of
from .drivers.protocol import JobDriver
from .drivers.schedules import schedules_of
from .http.auth import check_way_in, read_key_file
from .jobs.admission import Admission
from .jobs.client import Client
from .jobs.registry import load_registry
from .observability.logging import LogFormat, open_log
from .observability.metrics import Metrics
from .observability.telemetry import Telemetry
from .outbox.passes import DriverPasses, Passes, SharedPasses
from .outbox.relay import Relay, RelayOptions
from .settings import Settings, address_of
from .webhooks.build import carriers_of, webhook_control
from .worker.options import WorkerOptions, parse_queues
from .worker.worker import Worker

if TYPE_CHECKING:
    from .http.services import HttpServices

DEMO_JOBS = f"{__package__}.handlers.demo"


def build_relay(settings: Settings, driver: JobDriver, outbox: OutboxStore[Any] | None, telemetry: Telemetry) -> Relay:
    """Build the relay role: in one transaction where one database holds outbox and jobs, else through the driver.

    Raises:
        NotImplementedYet: the driver has no outbox.
    """
    if outbox is None:
        raise NotImplementedYet(
            f"the {driver.capabilities.name} driver has no outbox", fix="set OUTLAST_DATABASE_URL to postgresql://…"
        )

    def new_passes() -> Passes:
        if outbox is outbox_of(driver):
            return SharedPasses(outbox)
        return DriverPasses(outbox, driver, RelayId(uuid4()))

    options = RelayOptions()
    if settings.poll_seconds is not None:
        options = replace(options, poll=timedelta(seconds=settings.poll_seconds))
    return Relay(
        outbox=outbox,
        new_passes=new_passes,
        driver=driver,
        telemetry=telemetry,
        roll=SystemRandom().random,
        options=options,
    )


def build_telemetry(settings: Settings) -> Telemetry:
    """Build the process's voice: a log on stderr, metrics in a registry of their own."""
    is_console = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    log_format = LogFormat.CONSOLE if is_console else LogFormat.JSON
    return Telemetry(
        metrics=Metrics(), log=open_log(log_format=log_format, level=settings.log_level, stream=sys.stderr)
    )


def quiet_telemetry() -> Telemetry:
    """Build the voice of a command that does one thing: it counts and says nothing."""
    return Telemetry(metrics=Metrics())


def build_admission(settings: Settings) -> Admission:
    """Build the one admission function with this process's limits."""
    return Admission(limits=JsonLimits(max_bytes=settings.payload_max_bytes))


def build_jobs(
    settings: Settings,
    driver: JobDriver,
    outbox: OutboxStore[Any] | None,
    telemetry: Telemetry,
    *,
    catalogue: TypeCatalogue | None = None,
    waiters: ResultWaiters | None = None,
) -> JobControl:
    """Build the verbs on jobs over a driver; a command that does one thing and ends shares nothing with other parts."""
    return JobControl(
        driver=driver,
        catalogue=catalogue or TypeCatalogue(driver),
        waiters=waiters or ResultWaiters(driver),
        admission=build_admission(settings),
        telemetry=telemetry,
        staged=StagedIds(outbox, jobs=driver),
        actors=Actors(keys_of(driver)),
    )


def build_schedules(settings: Settings, driver: JobDriver, catalogue: TypeCatalogue) -> ScheduleControl:
    """Build the verbs on schedules over a driver."""
    return ScheduleControl(schedules_of(driver), catalogue=catalogue, admission=build_admission(settings))


def build_doctor(
    settings: Settings, driver: JobDriver, outbox: OutboxStore[Any] | None, *, is_here: bool = False
) -> Doctor:
    """Build the doctor over a driver, open or not; `is_here`: it may import the modules of jobs and try the ports."""
    grace = settings.grace_seconds
    addresses = {"OUTLAST_BIND": settings.bind, "OUTLAST_ADMIN_BIND": settings.admin_bind}

    def surroundings() -> Surroundings:
        return Surroundings(
            pool_size=settings.pool_size,
            drain=timedelta(seconds=settings.drain_seconds),
            lease=timedelta(seconds=settings.lease_seconds),
            grace=None if grace is None else timedelta(seconds=grace),
            modules=look_at_modules(settings.jobs) if is_here else None,
            ports=tuple(look_at_port(name, *address_of(bind, name)) for name, bind in addresses.items())
            if is_here
            else None,
        )

    return Doctor(driver, outbox, surroundings=surroundings, now=SystemClock().now)


def openapi_document() -> str:
    """Give the description of the HTTP API; the command line reaches it from here."""
    from .http.app import openapi_document as document  # noqa: PLC0415 - as in `build_services`

    return document()


def build_services(
    settings: Settings,
    driver: JobDriver,
    outbox: OutboxStore[Any] | None,
    telemetry: Telemetry,
    *,
    auth: Guard,
    is_started: Callable[[], bool],
    is_draining: Callable[[], bool],
    drain: DrainControl,
) -> HttpServices:
    """Build what the HTTP routes are given."""
    from .http.rate import RateLimiter  # noqa: PLC0415 - the web framework is loaded where it is served
    from .http.services import HttpServices  # noqa: PLC0415 - the web framework is loaded where it is served

    catalogue, streams = TypeCatalogue(driver), JobStreams(driver)
    waiters = ResultWaiters(driver)
    jobs = build_jobs(settings, driver, outbox, telemetry, catalogue=catalogue, waiters=waiters)
    jobs.limit_waiting(settings.api_waiting_per_tenant)
    return HttpServices(
        jobs=jobs,
        runs=RunControl(driver=driver, jobs=jobs, streams=streams),
        events=EventControl(driver, limits=build_admission(settings).limits),
        queues=QueueControl(driver),
        purge=PurgeControl(driver),
        outbox=OutboxControl(outbox, driver=driver),
        audit=AuditControl(driver, actors=Actors(keys_of(driver))),
        actors=Actors(keys_of(driver)),
        requests=RequestControl(driver),
        bulk=BulkControl(bulk_of(driver), telemetry=telemetry),
        schedules=build_schedules(settings, driver, catalogue),
        catalogue=catalogue,
        fleet=FleetControl(driver),
        flow=FlowControl(driver),
        limits=LimitControl(driver),
        drain=drain,
        deploys=DeployControl(driver),
        doctor=build_doctor(settings, driver, outbox),
        waiters=waiters,
        streams=streams,
        topics=TopicStreams(driver),
        auth=auth,
        keys=KeyControl(keys_of(driver), driver=driver, on_change=auth.changed),
        webhooks=webhook_control(settings, driver),
        rate=RateLimiter(settings.api_rate_per_second, bytes_per_second=settings.api_bytes_per_second),
        telemetry=telemetry,
        version=__version__,
        code_version=code_version(settings),
        payload_max_bytes=settings.payload_max_bytes,
        ping=driver.ping,
        is_started=is_started,
        is_draining=is_draining,
    )


def build_worker(
    settings: Settings, driver: JobDriver, telemetry: Telemetry, *, on_drain_asked: Callable[[str], object]
) -> Worker:
    """Build the worker role with the job types of the modules named in the settings.

    Raises:
        SettingsInvalid: a module does not import, or an option cannot work.
        JobNameTaken: two job types claim one name.
    """
    options = WorkerOptions(
        queues=parse_queues(settings.queues),
        concurrency=settings.concurrency,
        lease=timedelta(seconds=settings.lease_seconds),
        heartbeat=timedelta(seconds=settings.heartbeat_seconds),
        sweep=timedelta(seconds=settings.sweep_seconds),
        poll=None if settings.poll_seconds is None else timedelta(seconds=settings.poll_seconds),
        loop_stall=timedelta(seconds=settings.loop_stall_seconds),
        start=timedelta(seconds=settings.start_seconds),
        drain=timedelta(seconds=settings.drain_seconds),
        cancel_grace=timedelta(seconds=settings.cancel_grace_seconds),
        purge_every=timedelta(seconds=settings.purge_seconds),
        retention=build_retention(settings),
        result_max_bytes=settings.result_max_bytes,
        callback_queue=settings.callback_queue,
        code_version=code_version(settings),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    client = Client(driver, admission=build_admission(settings))
    registry = load_registry(settings.jobs, also=carriers_of(settings, driver, telemetry))
    options.retention.check(registry.retentions)
    return Worker(
        driver=driver,
        registry=registry,
        options=options,
        telemetry=telemetry,
        roll=SystemRandom().random,
        client=client,
        on_drain_asked=on_drain_asked,
    )


def build_retention(settings: Settings) -> Retention:
    """Build how long everything is kept that is over."""
    return Retention(
        done=timedelta(days=settings.retention_done_days),
        dead=timedelta(days=settings.retention_dead_days),
        source=timedelta(days=settings.source_retention_days),
        event=timedelta(days=settings.event_retention_days),
        record=timedelta(days=settings.record_retention_days),
        audit=timedelta(days=settings.audit_retention_days),
    )


def unserved_queues(settings: Settings) -> dict[str, str]:
    """Give the job types of this process whose queue its worker does not serve, with that queue."""
    served = {share.queue for share in parse_queues(settings.queues)}
    handles = load_registry(settings.jobs)
    return {handle.name: handle.policy.queue for handle in handles if handle.policy.queue not in served}


def build_auth(settings: Settings, driver: JobDriver, *, host: str, is_dev: bool) -> Guard:
    """Decide how callers are known; refuses to serve strangers. Once the driver is open, `check_keys` of it."""
    key = None if settings.api_key_file is None else read_key_file(settings.api_key_file)
    store = keys_of(driver)
    has_store = store is not None and driver.capabilities.is_durable
    if check_way_in(host=host, has_key=key is not None, has_store=has_store, is_dev=is_dev):
        return Guard(None)
    return Guard(key, store=store, refusals=Refusals(driver))


def code_version(settings: Settings) -> str:
    """Give what this code calls itself."""
    return settings.code_version or __version__
