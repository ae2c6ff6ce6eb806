"""Races on a real PostgreSQL, without sleeps and without luck.

A verb runs inside a transaction that stays open: it holds exactly the locks it takes in production at the instant
before its commit. Another verb is started beside it and is seen, in `pg_blocking_pids`, to wait for it, or comes back.
Then the first is committed or rolled back, and the end is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, cast

import asyncpg

from app.domain.job import ClaimToken, JobId, WorkerId
from app.domain.snapshot import Renewal
from app.drivers.postgres.database import Database, Raw, connect
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.heartbeat import PostgresHeartbeat
from app.drivers.postgres.ringer import Ringer
from app.drivers.protocol import Wake
from tests.support.drivers import LEASE, DriverEnv, PostgresEnv

T = TypeVar("T")

PATIENCE_SECONDS = 10.0

_BUCKETS = """
select 'ready' from outlast.ready where job_id = $1
union all select 'gate' from outlast.gate where job_id = $1
union all select 'waiting' from outlast.waiting where job_id = $1
union all select 'running' from outlast.running where job_id = $1
union all select 'suspended' from outlast.suspended where job_id = $1
union all select 'held' from outlast.held where job_id = $1
union all select 'finished' from outlast.finished where job_id = $1"""


class _Silent(Ringer):
    def ring(self, wakes: Iterable[Wake]) -> None:
        """Ring for nobody."""


class Pinned(Database):
    """A database all of whose statements go over one connection. Deadlocks are not repeated: they are seen.

    Wake-ups are not sent: what they speak of is not committed.
    """

    def __init__(self, env: PostgresEnv, connection: Any) -> None:
        super().__init__(env.engine)
        opened: Any = env.driver
        self.plans_are_ours = opened._db.plans_are_ours
        self.connection = connection
        self.ringer = _Silent(self.url, self.schema, roll=lambda: 0.0)

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        yield cast("Raw", self.connection)

    async def run(self, verb: Callable[[Raw], Awaitable[T]]) -> T:
        return await verb(cast("Raw", self.connection))


class Seat(DriverEnv):
    """A driver on a connection of its own; in a transaction when it was made by `holding`."""

    def __init__(self, env: PostgresEnv, connection: Any) -> None:
        driver = PostgresDriver(env.engine, schema="outlast")
        driver._db = Pinned(env, connection)
        super().__init__(driver)
        self._env = env
        self.connection = connection
        self.pid: int = connection.get_server_pid()
        self._transaction = connection.transaction()

    async def begin(self, isolation: str | None = None) -> None:
        if isolation is not None:
            self._transaction = self.connection.transaction(isolation=isolation)
        await self._transaction.start()

    async def commit(self) -> None:
        """Let what this seat did be seen, and its locks go."""
        await self._transaction.commit()

    async def rollback(self) -> None:
        """Let what this seat did never have been."""
        await self._transaction.rollback()

    async def renew(self, worker: WorkerId, held: Sequence[ClaimToken] = ()) -> Renewal:
        """Renew a lease, on this seat's connection."""
        heartbeat = PostgresHeartbeat(Database(self._env.engine))
        heartbeat._connection = self.connection
        return await heartbeat.renew(worker, held)

    async def abandon(self, worker: WorkerId, tokens: Sequence[ClaimToken], lease: timedelta = LEASE) -> int:
        """Mark claims as abandoned, on this seat's connection."""
        heartbeat = PostgresHeartbeat(Database(self._env.engine))
        heartbeat._connection = self.connection
        return await heartbeat.abandon(worker, tokens, lease)

    async def advance(self, by: timedelta) -> None:
        await self._env.advance(by)

    def now(self) -> datetime:
        return self._env.now()

    async def forget_worker(self, worker: WorkerId) -> None:
        await self._env.forget_worker(worker)

    async def forget_job(self, job_id: JobId) -> None:
        await self._env.forget_job(job_id)


class Started(Generic[T]):
    """A verb at work on a seat of its own."""

    def __init__(self, arena: Arena, seat: Seat, task: asyncio.Task[T]) -> None:
        self._arena = arena
        self.seat = seat
        self.task = task

    async def is_blocked_by(self, other: Seat) -> None:
        """Come back when this verb waits for a lock of `other`; it is a failure if it ends without."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while other.pid not in await self._arena.blockers(self.seat):
                assert not self.task.done(), f"did not wait, but ended with {self.task!r}"

    async def result(self) -> T:
        """Give what the verb answers."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.task


class Arena(PostgresEnv):
    """The environment of a race: everything of a driver's environment, and seats to race on.

    `watch_url`: where the test itself looks from, when the seats go through a pooler.
    """

    def __init__(self, env: PostgresEnv, url: str, *, watch_url: str | None = None) -> None:
        super().__init__(env.driver, env.engine, env.now())
        self._url = url
        self._watch_url = watch_url or url
        self._connections: list[Any] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._watcher: Any = None

    @asynccontextmanager
    async def holding(self, *, isolation: str | None = None) -> AsyncIterator[Seat]:
        """Give a seat in an open transaction; what it did is rolled back unless it was committed."""
        seat = await self._seat()
        await seat.begin(isolation)
        try:
            yield seat
        finally:
            if seat.connection.is_in_transaction():
                await seat.rollback()

    async def start(self, verb: Callable[[Seat], Coroutine[Any, Any, T]]) -> Started[T]:
        """Set a verb to work on a seat of its own."""
        seat = await self._seat()
        task = asyncio.create_task(verb(seat))
        self._tasks.append(task)
        return Started(self, seat, task)

    async def at_once(self, verb: Callable[[Seat], Coroutine[Any, Any, T]]) -> T:
        """Run a verb on a seat of its own; it is a failure if it has to wait for a lock."""
        seat = await self._seat()
        await seat.connection.execute("set lock_timeout = '1s'")
        return await verb(seat)

    def trust_plans(self, seat: Seat, *, is_ours: bool) -> None:
        """Let a seat's driver believe that the session settings which choose its plans are in force, or are not."""
        driver: Any = seat.driver
        driver._db.plans_are_ours = is_ours

    async def blockers(self, seat: Seat) -> list[int]:
        """Give the server processes that a seat waits for."""
        if self._watcher is None:
            self._watcher = await self._connect(self._watch_url)
        return list(await self._watcher.fetchval("select pg_blocking_pids($1)", seat.pid))

    async def bucket(self, job_id: JobId) -> str:
        """Give the one bucket a job's token is in."""
        found = [row[0] for row in await self.fetch(_BUCKETS, job_id)]
        assert len(found) == 1, f"in {found}"
        bucket: str = found[0]
        return bucket

    async def key_holder(self, key: str) -> JobId | None:
        """Give the job that holds a key of the standard job type."""
        rows = await self.fetch(
            "select k.job_id from outlast.live_key k join outlast.job j on j.key_hash = k.hash where j.key = $1", key
        )
        return JobId(rows[0][0]) if rows else None

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """Run a statement of the test's own."""
        if self._watcher is None:
            self._watcher = await self._connect(self._watch_url)
        return list(await self._watcher.fetch(sql, *args))

    async def execute_all(self, sql: str) -> None:
        """Run statements of the test's own that give nothing."""
        await self.fetch("select 1")
        await self._watcher.execute(sql)

    async def end(self) -> None:
        """Stop what still runs and give the connections back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            connection.terminate()

    async def _seat(self) -> Seat:
        return Seat(self, await self._connect(self._url))

    async def _connect(self, url: str) -> Any:
        connection: asyncpg.Connection = await connect(url, application_name="arena")
        self._connections.append(connection)
        return connection
