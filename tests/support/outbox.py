"""An outbox under test: transactions of a caller, rows staged in them, and the two ways a relay publishes.

The caller has an engine of its own, as an application has. On the memory driver its transactions are the driver's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from app.domain.job import JobId, NewJob
from app.domain.outbox import OutboxId, OutboxView, Pass, RelayId
from app.drivers.memory.driver import MemoryDriver
from app.drivers.memory.outbox_rows import MemoryTransaction
from app.drivers.outbox import OutboxStore, outbox_of
from app.drivers.postgres.database import create_engine
from app.outbox.passes import DriverPasses, Passes, SharedPasses
from tests.support.drivers import NAME, DriverEnv, MemoryEnv, PostgresEnv, new_job

BATCH = 100


def new_relay() -> RelayId:
    """Give the id of a relay of its own."""
    return RelayId(uuid4())


class Outbox(ABC):
    """The outbox beside a driver's jobs, and the sentences tests are written in."""

    def __init__(self, env: DriverEnv) -> None:
        self.env = env
        store = outbox_of(env.driver)
        assert store is not None
        self.store: OutboxStore[Any] = store
        self._below = outbox_of(env.below) or store

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open a caller's transaction: commits at the end, rolls back on an error."""

    @abstractmethod
    def savepoint(self, transaction: Any) -> AbstractAsyncContextManager[None]:
        """Open a part of it that an error undoes by itself."""

    async def stage(self, *jobs: NewJob) -> None:
        """Stage jobs in a transaction of their own, and commit."""
        async with self.transaction() as transaction:
            await self.store.stage(transaction, jobs)

    async def staged(self, name: str = NAME, **fields: Any) -> JobId:
        """Stage one new job and give its id."""
        job = new_job(name, **fields)
        await self.stage(job)
        return job.id

    async def written(self, payload: str, **fields: Any) -> JobId:
        """Write one row past admission and encryption, as whoever may write to the table can."""
        job = new_job(payload=payload, **fields)
        async with self.transaction() as transaction:
            await self._below.stage(transaction, [job])
        return job.id

    async def publish(self, batch: int = BATCH) -> Pass:
        """Publish in one transaction."""
        return await self.store.publish(batch)

    async def view(self) -> OutboxView:
        """Give the outbox as it stands."""
        return await self.store.view()

    async def is_there(self, job_id: JobId) -> bool:
        """Say whether a job is stored under this id."""
        return await self.env.driver.describe(job_id) is not None

    async def quarantined(self) -> list[tuple[OutboxId, str | None]]:
        """Give the quarantined rows with their codes."""
        return [(item.id, item.code) for item in (await self.view()).items]


class MemoryOutboxEnv(Outbox):
    """Transactions of the memory driver's outbox."""

    def __init__(self, env: MemoryEnv, driver: MemoryDriver) -> None:
        super().__init__(env)
        self._memory = driver

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryTransaction]:
        with self._memory.outbox.transaction() as opened:
            yield opened

    @asynccontextmanager
    async def savepoint(self, transaction: MemoryTransaction) -> AsyncIterator[None]:
        with transaction.savepoint():
            yield


class PostgresOutboxEnv(Outbox):
    """Sessions of an application with an engine of its own."""

    def __init__(self, env: PostgresEnv) -> None:
        super().__init__(env)
        # Past a pooler, where one stands in front of ours: what an application's engine leaves behind is not ours.
        driver: Any = env.driver
        past = driver._listen_url
        self.engine = create_async_engine(env.engine.url if past is None else create_engine(past).url)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        async with AsyncSession(self.engine) as session, session.begin():
            yield session

    @asynccontextmanager
    async def savepoint(self, transaction: AsyncSession) -> AsyncIterator[None]:
        async with transaction.begin_nested():
            yield


@asynccontextmanager
async def outbox_env(env: DriverEnv) -> AsyncIterator[Outbox]:
    """Open the outbox beside an environment's jobs."""
    async with AsyncExitStack() as stack:
        if isinstance(env, MemoryEnv):
            yield MemoryOutboxEnv(env, env.memory)
        else:
            assert isinstance(env, PostgresEnv)
            opened = PostgresOutboxEnv(env)
            stack.push_async_callback(opened.engine.dispose)
            yield opened


@pytest.fixture
async def outbox(env: DriverEnv) -> AsyncIterator[Outbox]:
    """Give the outbox of one driver, empty."""
    async with outbox_env(env) as opened:
        yield opened


WAYS = ("shared", "driver")


def passes_of(way: str, outbox: Outbox, relay_id: RelayId | None = None) -> Passes:
    """Give the passes of a relay that publishes this way."""
    if way == "shared":
        return SharedPasses(outbox.store)
    return DriverPasses(outbox.store, outbox.env.driver, relay_id or new_relay())


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Name the way this run publishes."""
    found: str = request.param
    return found


@pytest.fixture
def passes(way: str, outbox: Outbox) -> Passes:
    """Give the passes of one relay."""
    return passes_of(way, outbox)


def ids(rows: Sequence[Any]) -> list[Any]:
    """Give the ids of rows."""
    return [row.id for row in rows]
