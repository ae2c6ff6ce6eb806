"""One command against the store: open it, do one thing, close it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ..control.audit import AuditControl
    from ..control.bulk import BulkControl
    from ..control.events import EventControl
    from ..control.fleet import FleetControl
    from ..control.jobs import JobControl
    from ..control.keys import KeyControl
    from ..control.limits import LimitControl
    from ..control.outbox import OutboxControl
    from ..control.purge import PurgeControl
    from ..control.queues import QueueControl
    from ..control.runs import RunControl
    from ..control.schedules import ScheduleControl
    from ..control.webhooks import WebhookControl
    from ..drivers.protocol import JobDriver
    from ..settings import Settings

T = TypeVar("T")

OPEN = timedelta(seconds=5)


def with_fleet(db: str | None, verb: Callable[[FleetControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on workers over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..control.fleet import FleetControl
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    return asyncio.run(_with_driver(settings, lambda driver: verb(FleetControl(driver))))


def with_audit(db: str | None, verb: Callable[[AuditControl], Awaitable[T]]) -> T:
    """Run `verb` with the audit of the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..control.actors import Actors
    from ..control.audit import AuditControl
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    return asyncio.run(_with_driver(settings, lambda driver: verb(AuditControl(driver, actors=Actors(None)))))


def with_limits(db: str | None, verb: Callable[[LimitControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on limits over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..control.limits import LimitControl
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    return asyncio.run(_with_driver(settings, lambda driver: verb(LimitControl(driver))))


def with_jobs(db: str | None, verb: Callable[[JobControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on jobs over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..settings import Settings

    return asyncio.run(_with_jobs(Settings.read(database_url=db), lambda jobs, _driver: verb(jobs)))


def with_bulk(db: str | None, verb: Callable[[BulkControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on bulk operations over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..bootstrap import quiet_telemetry
    from ..control.bulk import BulkControl
    from ..drivers.bulk import bulk_of
    from ..settings import Settings

    def over(driver: JobDriver) -> Awaitable[T]:
        return verb(BulkControl(bulk_of(driver), telemetry=quiet_telemetry()))

    return asyncio.run(_with_driver(Settings.read(database_url=db), over))


def with_runs(db: str | None, verb: Callable[[RunControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on runs over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..control.runs import RunControl
    from ..control.streams import JobStreams
    from ..settings import Settings

    def over(jobs: JobControl, driver: JobDriver) -> Awaitable[T]:
        return verb(RunControl(driver=driver, jobs=jobs, streams=JobStreams(driver)))

    return asyncio.run(_with_jobs(Settings.read(database_url=db), over))


def with_events(db: str | None, verb: Callable[[EventControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on events over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..settings import Settings

    return asyncio.run(_with_events(Settings.read(database_url=db), verb))


def with_queues(db: str | None, verb: Callable[[QueueControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on queues over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..control.queues import QueueControl
    from ..settings import Settings

    return asyncio.run(_with_driver(Settings.read(database_url=db), lambda driver: verb(QueueControl(driver))))


def with_keys(db: str | None, verb: Callable[[KeyControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on API keys over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..control.keys import KeyControl
    from ..drivers.api_keys import keys_of
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    return asyncio.run(_with_driver(settings, lambda driver: verb(KeyControl(keys_of(driver), driver=driver))))


def with_webhooks(db: str | None, verb: Callable[[WebhookControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on webhooks over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..settings import Settings
    from ..webhooks.build import webhook_control

    settings = Settings.read(database_url=db)
    return asyncio.run(_with_driver(settings, lambda driver: verb(webhook_control(settings, driver))))


def with_schedules(db: str | None, verb: Callable[[ScheduleControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs on schedules over the store at `db`, or at OUTLAST_DATABASE_URL."""
    from ..bootstrap import build_schedules
    from ..control.catalogue import TypeCatalogue
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    return asyncio.run(
        _with_driver(settings, lambda driver: verb(build_schedules(settings, driver, TypeCatalogue(driver))))
    )


def with_purge(db: str | None, verb: Callable[[PurgeControl], Awaitable[T]]) -> T:
    """Run `verb` with the verbs of purging over the store at `db`, with the tables of the modules in OUTLAST_JOBS."""
    from ..bootstrap import build_retention
    from ..control.purge import PurgeControl
    from ..jobs.registry import load_registry
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    tables = load_registry(settings.jobs).tables

    def over(driver: JobDriver) -> Awaitable[T]:
        return verb(PurgeControl(driver, retention=build_retention(settings), tables=tables))

    return asyncio.run(_with_driver(settings, over))


def with_outbox(db: str | None, verb: Callable[[OutboxControl], Awaitable[T]]) -> T:
    """Run `verb` with the outbox of the store at `db`, or of the database that OUTLAST_OUTBOX_URL names."""
    from ..settings import Settings

    return asyncio.run(_with_outbox(Settings.read(database_url=db), verb))


async def _with_outbox(settings: Settings, verb: Callable[[OutboxControl], Awaitable[T]]) -> T:
    from ..control.outbox import OutboxControl
    from ..drivers.opening import close_driver, open_driver
    from ..stores import build_driver, build_outbox

    driver = build_driver(settings)
    outbox = build_outbox(settings, driver)
    try:
        await open_driver(driver, within=OPEN)
        if outbox is not None:
            await open_driver(outbox, within=OPEN)
        return await verb(OutboxControl(outbox, driver=driver))
    finally:
        if outbox is not None:
            await outbox.close()
        await close_driver(driver)


async def _with_events(settings: Settings, verb: Callable[[EventControl], Awaitable[T]]) -> T:
    from ..bootstrap import build_admission
    from ..control.events import EventControl

    limits = build_admission(settings).limits
    return await _with_driver(settings, lambda driver: verb(EventControl(driver, limits=limits)))


async def _with_jobs(settings: Settings, verb: Callable[[JobControl, JobDriver], Awaitable[T]]) -> T:
    from ..bootstrap import build_jobs, quiet_telemetry
    from ..stores import build_outbox

    async def with_outbox_at_hand(driver: JobDriver) -> T:
        # Asked only about an id under which there is no job: it need not answer for anything else.
        outbox = build_outbox(settings, driver)
        try:
            return await verb(build_jobs(settings, driver, outbox, quiet_telemetry()), driver)
        finally:
            if outbox is not None:
                await outbox.close()

    return await _with_driver(settings, with_outbox_at_hand)


async def _with_driver(settings: Settings, verb: Callable[[JobDriver], Awaitable[T]]) -> T:
    from ..drivers.opening import close_driver, open_driver
    from ..stores import build_driver

    driver = build_driver(settings)
    try:
        await open_driver(driver, within=OPEN)
        return await verb(driver)
    finally:
        await close_driver(driver)
