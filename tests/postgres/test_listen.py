"""Wake-ups: heard after a commit, never across schemas, and listening mends itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from app.domain.outcome import Completed
from app.drivers.postgres import migrations
from app.drivers.postgres.database import Database, create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.listen import listen
from app.drivers.protocol import Wake
from tests.postgres.arena import Arena
from tests.support.drivers import new_job

pytestmark = pytest.mark.postgres


class Ear:
    """What was heard, and a way to wait for it."""

    def __init__(self) -> None:
        self.heard: list[Wake] = []
        self._news = asyncio.Event()

    def __call__(self, wake: Wake) -> None:
        self.heard.append(wake)
        self._news.set()

    async def hears(self, wake: Wake, *, after: int = 0) -> int:
        """Wait until `wake` is among what was heard after the first `after`; give the place behind it."""
        async with asyncio.timeout(15):
            while wake not in self.heard[after:]:
                self._news.clear()
                await self._news.wait()
        return self.heard.index(wake, after) + 1


async def listening_backend(arena: Arena) -> int:
    (row,) = await arena.fetch(
        "select pid from pg_stat_activity where application_name = 'outlast listen' and datname = current_database()"
    )
    return int(row[0])


@asynccontextmanager
async def database(url: str) -> AsyncIterator[Database]:
    engine = create_engine(url, pool_size=1)
    db = Database(engine)
    try:
        yield db
    finally:
        await db.close()
        await engine.dispose()


async def test_what_is_committed_is_heard(arena: Arena) -> None:
    ear = Ear()
    async with arena.driver.listen(ear):
        assert ear.heard == [Wake.LISTENING]
        await arena.enqueue()
        await ear.hears(Wake.READY)
        claim = await arena.claim_one(await arena.register())
        await arena.close_attempt(claim.token, Completed())
        await ear.hears(Wake.FINISHED)
        running = await arena.running()
        await arena.driver.cancel(running.token.job_id, reason="no")
        await ear.hears(Wake.REVOKED)


async def test_a_terminated_listener_is_established_again(arena: Arena) -> None:
    ear = Ear()
    async with arena.driver.listen(ear):
        place = len(ear.heard)
        for _ in range(2):
            await arena.fetch("select pg_terminate_backend($1)", await listening_backend(arena))
            place = await ear.hears(Wake.LOST, after=place)
            place = await ear.hears(Wake.LISTENING, after=place)
        await arena.enqueue()
        await ear.hears(Wake.READY, after=place)
    assert ear.heard.count(Wake.LOST) == 2


async def test_a_silent_listener_is_found_out_by_its_own_ping(arena: Arena, database_url: str) -> None:
    ear = Ear()
    brief = timedelta(milliseconds=500)
    async with database(database_url) as db, listen(db, ear, ping_interval=brief, ping_answer=brief):
        pid = await listening_backend(arena)
        os.kill(pid, signal.SIGSTOP)
        try:
            place = await ear.hears(Wake.LOST)
            await ear.hears(Wake.LISTENING, after=place)
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_an_unreachable_listener_says_lost_once_and_leaves_the_driver_alone(database_url: str) -> None:
    ear = Ear()
    engine = create_engine(database_url, pool_size=1)
    driver = PostgresDriver(engine, listen_url="postgresql://nobody@127.0.0.1:9/nothing")
    async with driver.listen(ear):
        assert ear.heard == [Wake.LOST]
        await driver.enqueue(new_job())
    assert ear.heard == [Wake.LOST]
    await driver.close()
    await engine.dispose()


async def test_two_schemas_do_not_wake_each_other(arena: Arena, database_url: str) -> None:
    await migrations.upgrade(database_url, schema="other")
    mine, theirs = Ear(), Ear()
    engine = create_engine(database_url, pool_size=1)
    other = PostgresDriver(engine, schema="other")
    async with arena.driver.listen(mine), other.listen(theirs):
        await other.enqueue(new_job())
        await theirs.hears(Wake.READY)
        await arena.enqueue()
        await mine.hears(Wake.READY)
        assert mine.heard == [Wake.LISTENING, Wake.READY]
        assert theirs.heard == [Wake.LISTENING, Wake.READY]
    await other.close()
    await engine.dispose()


async def test_listening_ends_with_its_context(arena: Arena) -> None:
    ear = Ear()
    async with arena.driver.listen(ear):
        pid = await listening_backend(arena)
    async with asyncio.timeout(10):
        while await arena.fetch("select from pg_stat_activity where pid = $1", pid):
            pass
    assert ear.heard == [Wake.LISTENING]
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("outlast.listen")]


@pytest.mark.parametrize(
    "fatal", ["select pg_terminate_backend(pg_backend_pid()), $1::text[]", "select 1/0, $1::text[]"]
)
async def test_an_enqueue_does_not_fail_for_want_of_a_wake_up(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, fatal: str
) -> None:
    monkeypatch.setattr("app.drivers.postgres.ringer._NOTIFY", fatal)
    job_id = await arena.enqueue()
    assert await arena.bucket(job_id) == "ready"


async def test_a_fault_of_the_callers_own_is_not_swallowed(arena: Arena) -> None:
    def deaf(_: Wake) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with arena.driver.listen(deaf):
            pass
