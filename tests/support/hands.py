"""A worker of the product inside the test's own process: the whole role, with its log events at hand."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.jobs import Client, Registry
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.worker.options import WorkerOptions
from app.worker.worker import Worker
from tests.support.processes import HEARTBEAT, JOBS, LEASE, POLL, SWEEP


class Hands:
    """One worker and what it says."""

    def __init__(self, worker: Worker, telemetry: Telemetry) -> None:
        self.worker = worker
        self.telemetry = telemetry
        self.probe = Probe(telemetry)


@asynccontextmanager
async def hired(url: str, *, seed: int = 0, concurrency: int = 10) -> AsyncIterator[Hands]:
    """Run a worker on a database until the end of the context."""
    engine = create_engine(url, pool_size=6, application_name="outlast")
    driver = PostgresDriver(engine)
    await driver.open()
    telemetry = Telemetry(metrics=Metrics())
    options = WorkerOptions(
        concurrency=concurrency,
        lease=timedelta(seconds=LEASE),
        heartbeat=timedelta(seconds=HEARTBEAT),
        sweep=timedelta(seconds=SWEEP),
        poll=timedelta(seconds=POLL),
        cancel_grace=timedelta(seconds=0.5),
        code_version="tests",
    )
    worker = Worker(
        driver=driver,
        registry=Registry.from_modules(JOBS.split(",")),
        options=options,
        telemetry=telemetry,
        roll=random.Random(seed).random,
        client=Client(driver),
    )
    try:
        await worker.start()
        try:
            yield Hands(worker, telemetry)
        finally:
            await worker.stop()
    finally:
        await driver.close()
        await engine.dispose()
