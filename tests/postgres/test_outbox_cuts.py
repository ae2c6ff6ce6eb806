"""A relay that dies at any boundary of any statement makes no second job, also when the first is done and purged.

The connection is cut before a statement is sent, or after it was executed and before its reply is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.outbox import RELAY_LEASE, Pass
from app.domain.outcome import Completed
from app.domain.state import State
from app.drivers.postgres.database import Database, Raw
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.outbox import PostgresOutbox
from app.drivers.protocol import PurgeQuery
from app.drivers.reading import ListQuery
from app.outbox.passes import DriverPasses, Passes, SharedPasses
from tests.support.drivers import PostgresEnv, new_job, postgres_env
from tests.support.outbox import BATCH, PostgresOutboxEnv, new_relay, passes_of

pytestmark = pytest.mark.postgres

T = TypeVar("T")


class Scissors:
    """Counts the boundaries that go by and cuts at one of them. Wake-ups do not count: nothing hangs on them."""

    def __init__(self, at: int | None = None, *, is_after: bool = False) -> None:
        self.at = at
        self.is_after = is_after
        self.count = 0

    async def around(self, call: Callable[[], Awaitable[T]], what: str = "") -> T:
        if "pg_notify" in what:
            return await call()
        is_here = self.count == self.at
        self.count += 1
        if is_here and not self.is_after:
            raise ConnectionResetError("cut before it was sent")
        answer = await call()
        if is_here:
            raise ConnectionResetError("cut before the reply")
        return answer


class CutRaw:
    """A connection that scissors are held to."""

    def __init__(self, conn: Any, scissors: Scissors) -> None:
        self._conn = conn
        self._scissors = scissors

    def __getattr__(self, verb: str) -> Any:
        async def send(query: str, *args: object) -> object:
            return await self._scissors.around(lambda: getattr(self._conn, verb)(query, *args), query)

        return send

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        opened = self._conn.transaction()
        await self._scissors.around(opened.start)
        try:
            yield
        except BaseException:
            with suppress(Exception):
                await opened.rollback()
            raise
        await self._scissors.around(opened.commit)


class CutDatabase(Database):
    """A database all of whose connections may be cut."""

    def __init__(self, env: PostgresEnv, scissors: Scissors) -> None:
        super().__init__(env.engine)
        self.scissors = scissors

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        async with super().raw() as conn:
            yield cast("Raw", CutRaw(conn, self.scissors))


@asynccontextmanager
async def mortal(way: str, env: PostgresEnv, scissors: Scissors) -> AsyncIterator[Passes]:
    """Give the passes of a relay that dies where the scissors say."""
    database = CutDatabase(env, scissors)
    driver = PostgresDriver(env.engine)
    driver._db = database
    try:
        if way == "shared":
            yield SharedPasses(PostgresOutbox(database))
        else:
            yield DriverPasses(PostgresOutbox(database), driver, new_relay())
    finally:
        await driver.close()


class Rows:
    """Three rows: a plain one, a keyed one, and one whose key is held by another payload."""

    def __init__(self, outbox: PostgresOutboxEnv) -> None:
        self.outbox = outbox

    async def stage(self, turn: int) -> None:
        await self.outbox.env.enqueue(key=f"held {turn}", fingerprint=1)
        self.plain, self.keyed, self.wrong = (
            new_job(),
            new_job(key=f"free {turn}"),
            new_job(key=f"held {turn}", fingerprint=2),
        )
        await self.outbox.stage(self.plain, self.keyed, self.wrong)

    async def finish_and_purge(self) -> None:
        """Run to done and purge what is there of the plain and the keyed one."""
        env = self.outbox.env
        worker = await env.register()
        wanted = {self.plain.id, self.keyed.id}
        for claimed in await env.claim(worker, room=BATCH):
            if claimed.token.job_id in wanted:
                await env.close_attempt(claimed.token, Completed())
        await env.driver.close_worker(worker)
        await env.driver.reap()
        await env.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta(seconds=-1)))

    async def there(self) -> list[JobId]:
        page = await self.outbox.env.driver.list(ListQuery(limit=200))
        return [view.id for view in page.items if view.id in {self.plain.id, self.keyed.id, self.wrong.id}]


async def count_boundaries(way: str, outbox: PostgresOutboxEnv, env: PostgresEnv) -> int:
    await Rows(outbox).stage(-1)
    scissors = Scissors()
    async with mortal(way, env, scissors) as passes:
        done = await passes.once(BATCH)
    assert (done.published, len(done.quarantined)) == (2, 1)
    return scissors.count


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", ["shared", "driver"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before it is sent", "before its reply"])
@pytest.mark.parametrize("is_purged", [False, True], ids=["first is there", "first is done and purged"])
async def test_a_relay_killed_at_any_boundary_makes_no_second_job(
    database_url: str, way: str, is_after: bool, is_purged: bool
) -> None:
    async with postgres_env(database_url, pool_size=6) as env:
        outbox = PostgresOutboxEnv(env)
        boundaries = await count_boundaries(way, outbox, env)
        assert boundaries >= 7
        for at in range(boundaries):
            rows = Rows(outbox)
            await rows.stage(at)
            async with mortal(way, env, Scissors(at, is_after=is_after)) as passes:
                with pytest.raises(DriverUnavailable):
                    await passes.once(BATCH)
            before = await rows.there()
            if is_purged:
                await rows.finish_and_purge()
            await env.advance(RELAY_LEASE)
            await outbox.store.recover()
            other = passes_of("driver" if way == "driver" else "shared", outbox)
            while (await other.once(BATCH)) != Pass():
                pass
            gone = set(before) if is_purged else set()
            assert sorted(await rows.there()) == sorted({rows.plain.id, rows.keyed.id} - gone), at
            assert rows.wrong.id in {item.id for item in (await outbox.view()).items}, at
            for job in (rows.plain, rows.keyed):
                assert await outbox.store.forwarded(job.id) == job.id, at
                assert await outbox.store.find(job.id) is None, at
        await outbox.engine.dispose()
