"""The driver harness: one environment over each job store, with time that moves only when a test moves it.

A conformance test takes `env` and runs once per driver. Time stands still on both until `advance`: the memory driver
has a `ManualClock`, on PostgreSQL the function `outlast.clock()` is replaced by a constant. Nothing of PostgreSQL is
imported before a test asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from app.domain.clock import ManualClock
from app.domain.job import ClaimedJob, ClaimToken, Enqueued, JobId, WorkerId
from app.domain.outcome import Outcome, SettleAnswer, Settlement
from app.domain.snapshot import AttemptView, JobView, Renewal
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import ClaimRequest, JobDriver, QueueShare
from app.drivers.sealing.aes import AesGcmCodec
from app.drivers.sealing.driver import sealing
from tests.support.made import ERROR, LEASE, NAME, QUEUE, new_id, new_job, new_worker, with_token

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = [
    "DRIVERS",
    "ERROR",
    "LEASE",
    "MEMORY",
    "NAME",
    "POOLED",
    "POSTGRES",
    "QUEUE",
    "SEALED",
    "DriverEnv",
    "MemoryEnv",
    "PostgresEnv",
    "driver_kind",
    "driver_url",
    "env",
    "memory_env",
    "new_id",
    "new_job",
    "new_worker",
    "open_env",
    "postgres_env",
    "start_time",
    "with_token",
]

MEMORY = "memory"
POSTGRES = "postgres"
POOLED = "pooled"
SEALED = "sealed"

SEALING_KEY = bytes(range(32))

DRIVERS = [
    pytest.param(MEMORY, id=MEMORY),
    pytest.param(POSTGRES, id=POSTGRES, marks=pytest.mark.postgres),
    # The same once more through a transaction pooler: `make pooled`.
    pytest.param(POOLED, id=POOLED, marks=[pytest.mark.postgres, pytest.mark.pooled]),
    # And once more with payloads encrypted, in memory.
    pytest.param(SEALED, id=SEALED, marks=[pytest.mark.long]),
]


class DriverEnv(ABC):
    """A driver, its clock, and the sentences tests are written in.

    `below` holds the rows: what is below the driver that encrypts payloads, where there is one.
    """

    def __init__(self, driver: JobDriver, below: JobDriver | None = None) -> None:
        self.driver = driver
        self.below = below or driver

    @property
    def name(self) -> str:
        return self.driver.capabilities.name

    @abstractmethod
    async def advance(self, by: timedelta) -> None:
        """Move the store's clock forward; it stands still otherwise."""

    @abstractmethod
    def now(self) -> datetime:
        """Give the store's time."""

    @abstractmethod
    async def forget_worker(self, worker: WorkerId) -> None:
        """Delete a worker's row as if it had never been; its claims stay."""

    @abstractmethod
    async def forget_job(self, job_id: JobId) -> None:
        """Delete an ended job whoever waits for it, as nothing of ours does yet."""

    # --- producers

    async def enqueue(self, name: str = NAME, **fields: Any) -> JobId:
        """Enqueue one new job and give its id; a job that was there before is a failure of the test."""
        answer = await self.driver.enqueue(new_job(name, **fields))
        assert not answer.deduped
        return answer.id

    async def enqueue_again(self, name: str = NAME, **fields: Any) -> Enqueued:
        """Enqueue one job and give the store's whole answer."""
        return await self.driver.enqueue(new_job(name, **fields))

    # --- workers

    async def register(self, **fields: Any) -> WorkerId:
        """Register a worker; any field of `NewWorker` can be named."""
        return await self.driver.register_worker(new_worker(**fields))

    async def claim(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str] = (QUEUE,),
        names: Iterable[str] = (NAME,),
        room: int = 10,
    ) -> tuple[ClaimedJob, ...]:
        """Claim up to `room` jobs from queues that each have that much room."""
        shares = tuple(QueueShare(queue=queue, room=room) for queue in queues)
        return await self.driver.claim(ClaimRequest(worker_id=worker, shares=shares, names=frozenset(names), room=room))

    async def claim_one(self, worker: WorkerId, **where: Any) -> ClaimedJob:
        """Claim exactly one job."""
        claimed = await self.claim(worker, room=1, **where)
        assert len(claimed) == 1
        return claimed[0]

    async def running(self, worker: WorkerId | None = None, **fields: Any) -> ClaimedJob:
        """Enqueue a job and claim it; the queue must be empty otherwise."""
        job_id = await self.enqueue(**fields)
        held = await self.claim_one(
            worker if worker is not None else await self.register(),
            queues=(fields.get("queue", QUEUE),),
            names=(fields.get("name", NAME),),
        )
        assert held.token.job_id == job_id
        return held

    async def settle(self, token: ClaimToken, outcome: Outcome) -> SettleAnswer:
        """Settle one attempt and give the store's answer."""
        (answer,) = await self.driver.settle((Settlement(token=token, outcome=outcome),))
        return answer

    async def close_attempt(self, token: ClaimToken, outcome: Outcome) -> None:
        """Settle one attempt; anything but `settled` is a failure of the test."""
        assert await self.settle(token, outcome) is SettleAnswer.SETTLED

    async def renew(self, worker: WorkerId, held: Sequence[ClaimToken] = ()) -> Renewal:
        """Renew a lease over a heartbeat connection opened for this call."""
        async with self.driver.open_heartbeat() as heartbeat:
            return await heartbeat.renew(worker, held)

    async def abandon(self, worker: WorkerId, tokens: Sequence[ClaimToken], lease: timedelta = LEASE) -> int:
        """Mark claims as abandoned over a heartbeat connection opened for this call."""
        async with self.driver.open_heartbeat() as heartbeat:
            return await heartbeat.abandon(worker, tokens, lease)

    async def vanish(self, *, lease: timedelta = LEASE) -> None:
        """Let every lease of `lease` pass without a word."""
        await self.advance(lease + timedelta(seconds=1))

    # --- readers

    async def describe(self, job_id: JobId) -> JobView:
        """Give a job that must be there."""
        view = await self.driver.describe(job_id)
        assert view is not None
        return view

    async def ledger(self, job_id: JobId) -> tuple[AttemptView, ...]:
        """Give the attempts of a job."""
        return await self.driver.attempts(job_id)


class MemoryEnv(DriverEnv):
    """The memory driver under a manual clock."""

    def __init__(self, clock: ManualClock, *, is_sealed: bool = False) -> None:
        self.memory = MemoryDriver(clock)
        sealed = sealing(self.memory, AesGcmCodec([SEALING_KEY])) if is_sealed else None
        super().__init__(sealed or self.memory, self.memory)
        self._clock = clock

    async def advance(self, by: timedelta) -> None:
        self._clock.advance(by)

    def now(self) -> datetime:
        return self._clock.now()

    async def forget_worker(self, worker: WorkerId) -> None:
        del self.memory._store.workers[worker]

    async def forget_job(self, job_id: JobId) -> None:
        self.memory._store.forget(job_id)


class PostgresEnv(DriverEnv):
    """The PostgreSQL driver; the database's clock is a constant that `advance` replaces."""

    def __init__(self, driver: JobDriver, engine: AsyncEngine, start: datetime) -> None:
        super().__init__(driver)
        self.engine = engine
        self._now = start

    async def advance(self, by: timedelta) -> None:
        await self.set_clock(self._now + by)

    def now(self) -> datetime:
        return self._now

    async def forget_worker(self, worker: WorkerId) -> None:
        await self.execute(f"delete from outlast.worker where id = {worker}")

    async def forget_job(self, job_id: JobId) -> None:
        for table, key in (("finished", "job_id"), ("attempt", "job_id"), ("job", "id")):
            await self.execute(f"delete from outlast.{table} where {key} = '{job_id}'")

    async def execute(self, sql: str) -> None:
        """Run one statement of the test's own."""
        async with self.engine.connect() as connection:
            await connection.exec_driver_sql(sql)
            await connection.commit()

    async def empty(self) -> None:
        """Delete every row but the names of job types, whose ids a driver may remember."""
        async with self.engine.connect() as connection:
            found = await connection.exec_driver_sql(
                "select tablename from pg_tables where schemaname = 'outlast' and tablename not in"
                " ('job_name', 'alembic_version')"
            )
            await connection.exec_driver_sql(f"truncate {', '.join(f'outlast.{table}' for (table,) in found)}")
            await connection.commit()
        # What a driver keeps in mind of the times it has looked at it forgets on a new connection.
        await self.engine.dispose()

    async def set_clock(self, now: datetime) -> None:
        """Let the database's clock stand at `now`."""
        self._now = now
        await self.execute(_frozen_clock(now))


def _frozen_clock(now: datetime) -> str:
    # Language sql and one expression, like the real one: the planner inlines it, cached plans are made anew.
    instant = f"timestamptz '{now.astimezone(UTC).isoformat()}'"
    return (
        "create or replace function outlast.clock() returns timestamptz"
        f" language sql stable parallel safe as $$select {instant}$$"
    )


def start_time() -> datetime:
    """Give the instant an environment starts at.

    An hour ahead of the real clock: a reaper that waits one lease after the server's start has waited long enough.
    """
    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


@asynccontextmanager
async def memory_env(start: datetime | None = None, *, is_sealed: bool = False) -> AsyncIterator[MemoryEnv]:
    """Open an empty memory driver, with `is_sealed` under one that encrypts payloads."""
    env = MemoryEnv(ManualClock(start or start_time()), is_sealed=is_sealed)
    await env.driver.open()
    try:
        yield env
    finally:
        await env.driver.close()


@asynccontextmanager
async def postgres_env(
    database_url: str, start: datetime | None = None, *, pool_size: int = 4, listen_url: str | None = None
) -> AsyncIterator[PostgresEnv]:
    """Open the PostgreSQL driver on a migrated, empty database; behind a pooler `listen_url` leads past it."""
    from app.drivers.postgres.database import create_engine  # noqa: PLC0415 - only when PostgreSQL is asked for
    from app.drivers.postgres.driver import PostgresDriver  # noqa: PLC0415 - same

    engine = create_engine(database_url, pool_size=pool_size)
    driver = PostgresDriver(engine, schema="outlast", listen_url=listen_url)
    env = PostgresEnv(driver, engine, start or start_time())
    await env.set_clock(env.now())
    await env.driver.open()
    try:
        yield env
    finally:
        await env.driver.close()
        await engine.dispose()


def open_env(
    kind: str, database_url: str | None, *, listen_url: str | None = None
) -> AbstractAsyncContextManager[DriverEnv]:
    """Open the environment of one driver."""
    if kind in {MEMORY, SEALED}:
        return memory_env(is_sealed=kind == SEALED)
    assert database_url is not None
    return postgres_env(database_url, start_time(), listen_url=listen_url)


@pytest.fixture(params=DRIVERS)
def driver_kind(request: pytest.FixtureRequest) -> str:
    """Name the driver of this run."""
    kind: str = request.param
    return kind


@pytest.fixture
def driver_url(request: pytest.FixtureRequest, driver_kind: str) -> str | None:
    """Give a fresh database for a PostgreSQL run, nothing for the memory run."""
    if driver_kind in {MEMORY, SEALED}:
        return None
    url: str = request.getfixturevalue("database_url" if driver_kind == POSTGRES else "pooled_url")
    return url


@pytest.fixture
async def env(request: pytest.FixtureRequest, driver_kind: str, driver_url: str | None) -> AsyncIterator[DriverEnv]:
    """Give the environment of one driver, empty."""
    listen_url = request.getfixturevalue("database_url") if driver_kind == POOLED else None
    async with open_env(driver_kind, driver_url, listen_url=listen_url) as opened:
        yield opened
    if driver_kind == POOLED:
        await _nothing_is_left(str(driver_url))


async def _nothing_is_left(url: str) -> None:
    from tests.support.pooler import at_each_server  # noqa: PLC0415 - only when there is a pooler

    left = [row["left_behind"] for row in await at_each_server(url) if row["left_behind"]]
    assert left == [], left
