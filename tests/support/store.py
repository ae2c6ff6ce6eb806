"""The store as a test uses it beside real processes: jobs go in through admission, and are looked at and waited for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from app.control.jobs import EnqueueRequest
from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.snapshot import AttemptView, JobView
from app.domain.state import TERMINAL, State
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.jobs import Registry
from app.jobs.admission import Admission
from app.jobs.client import Client
from app.jobs.describe import job_type_docs
from tests.support.processes import JOBS, PATIENCE, eventually


class Store:
    """One database with the job types of the tests."""

    def __init__(self, driver: PostgresDriver) -> None:
        self.driver = driver
        self.registry = Registry.from_modules(JOBS.split(","))
        self.held_to = 0  # the last write of its history that was held to the rules
        self._client = Client(driver, admission=Admission(), enqueued_by="tests")

    async def publish(self) -> None:
        """Publish the job types, as a worker would."""
        await self.driver.publish_job_types(job_type_docs(self.registry, code_version="tests"))

    async def enqueue(self, name: str, payload: dict[str, Any] | None = None, **fields: Any) -> JobId:
        """Enqueue a job; any field of a request can be named."""
        handle = self.registry.get(name)
        assert handle is not None, name
        request = EnqueueRequest(name=name, payload_text=json.dumps(payload or {}))
        answer = await self._client.enqueue(handle.job_type, replace(request, **fields))
        return answer.id

    async def view(self, job_id: JobId) -> JobView:
        """Give a job as it stands."""
        view = await self.driver.describe(job_id)
        assert view is not None, f"job {job_id} is gone"
        return view

    async def state(self, job_id: JobId) -> State:
        """Give a job's state."""
        return (await self.view(job_id)).state

    async def attempts(self, job_id: JobId) -> tuple[AttemptView, ...]:
        """Give the ledger of a job."""
        return await self.driver.attempts(job_id)

    async def outcomes(self, job_id: JobId) -> list[OutcomeKind]:
        """Give how each of a job's attempts ended."""
        return [attempt.outcome for attempt in await self.attempts(job_id)]

    async def until(self, job_id: JobId, *states: State, within: float = PATIENCE) -> JobView:
        """Wait until a job is in one of these states, terminal ones when none is named."""
        wanted = states or tuple(TERMINAL)

        async def arrived() -> bool:
            return await self.state(job_id) in wanted

        await eventually(arrived, f"job {job_id} is {' or '.join(wanted)}", within)
        return await self.view(job_id)

    async def all_until(self, job_ids: Sequence[JobId], *states: State, within: float = PATIENCE) -> list[JobView]:
        """Wait for all of them."""
        return [await self.until(job_id, *states, within=within) for job_id in job_ids]

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """Run a statement of the test's own."""
        return list(await self.driver._db.run(lambda conn: conn.fetch(sql, *args)))

    async def clock_before_a_minute(self, seconds: int) -> None:
        """Set the database's clock further ahead, so that a minute is over in so many seconds."""
        ((now, ahead),) = await self.fetch("select outlast.clock(), outlast.clock() - statement_timestamp()")
        ahead += timedelta(seconds=(60 - seconds - now.second) % 60)
        await self.fetch(
            "create or replace function outlast.clock() returns timestamptz language sql stable parallel safe"
            f" as $$select statement_timestamp() + interval '{ahead.total_seconds()} s'$$"
        )


@asynccontextmanager
async def store_on(url: str) -> AsyncIterator[Store]:
    """Open a database that has the newest schema."""
    engine = create_engine(url, pool_size=8, application_name="tests", command_timeout=timedelta(seconds=30))
    driver = PostgresDriver(engine)
    await driver.open()
    try:
        yield Store(driver)
    finally:
        await driver.close()
        await engine.dispose()


def job_id_of(text: str) -> JobId:
    """Read a job's id."""
    return JobId(UUID(text))
