"""Wake-ups around a pooler: LISTEN needs a session, so it goes past it, or polling carries and everybody can see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from app.drivers.postgres.database import Database, create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.listen import listen
from app.drivers.postgres.notify import notify
from app.drivers.protocol import Wake
from app.jobs.handle import job
from tests.roles.harness import QUICK, Bench
from tests.support import pooler
from tests.support.pooler import at_each_server, running_pooler
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.postgres

ANSWER = timedelta(milliseconds=500)


@asynccontextmanager
async def listening(url: str, listen_url: str | None, answer: timedelta = timedelta(seconds=5)) -> AsyncIterator[Ear]:
    """Listen over a pooled database's engine; what is said first has been said."""
    engine, ear = create_engine(url, pool_size=1), Ear()
    db = Database(engine)
    try:
        async with listen(db, ear, listen_url=listen_url, ping_answer=answer):
            ear.db = db
            yield ear
    finally:
        await db.close()
        await engine.dispose()


class Ear:
    """What was heard, and a way to wait for it."""

    db: Database

    def __init__(self) -> None:
        self.heard: list[Wake] = []
        self._news = asyncio.Event()

    def __call__(self, wake: Wake) -> None:
        self.heard.append(wake)
        self._news.set()

    async def hears(self, wake: Wake) -> None:
        async with asyncio.timeout(PATIENCE):
            while wake not in self.heard:
                self._news.clear()
                await self._news.wait()


async def test_without_a_way_past_the_pooler_it_is_said_and_no_listen_is_sent(pooled_url: str) -> None:
    async with listening(pooled_url, None) as ear:
        await notify(ear.db, Wake.READY)
        assert ear.heard == [Wake.LOST]
        assert [row["left_behind"] for row in await at_each_server(pooled_url) if row["left_behind"]] == []


async def test_past_the_pooler_wake_ups_are_heard(pooled_url: str, database_url: str) -> None:
    async with listening(pooled_url, database_url) as ear:
        assert ear.heard == [Wake.LISTENING]
        await notify(ear.db, Wake.READY)
        await ear.hears(Wake.READY)


async def test_a_listen_url_that_shares_its_servers_after_all_is_found_out(pooled_url: str) -> None:
    """There a connection hears its own ping, and nobody else's."""
    async with listening(pooled_url, pooled_url, ANSWER) as ear:
        assert ear.heard == [Wake.LOST]


async def test_a_pooler_that_gives_a_server_to_each_session_can_be_listened_through(
    pooled_url: str, database_url: str
) -> None:
    with pooler.folder() as folder, running_pooler(database_url, folder, pool_mode="session") as sessions:
        async with listening(pooled_url, sessions.url(database_url)) as ear:
            assert ear.heard == [Wake.LISTENING]
            await notify(ear.db, Wake.READY)
            await ear.hears(Wake.READY)


# --- the worker


@job("add.job")
async def add(a: int, b: int) -> int:
    return a + b


@asynccontextmanager
async def working(url: str, listen_url: str | None) -> AsyncIterator[Bench]:
    engine = create_engine(url, pool_size=5)
    bench = Bench((add,), driver=PostgresDriver(engine, listen_url=listen_url), options=replace(QUICK, poll=None))
    await bench.driver.open()
    await bench.worker.start()
    try:
        yield bench
    finally:
        await bench.worker.stop()
        await bench.driver.close()
        await engine.dispose()


async def _shows(bench: Bench, wakeup: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while [view.wakeup for view in await bench.driver.workers()] != [wakeup]:
            await asyncio.sleep(0.01)


async def test_a_worker_behind_a_pooler_runs_jobs_by_polling_and_says_so(pooled_url: str) -> None:
    async with working(pooled_url, None) as bench:
        await bench.probe.wait("listener.lost")
        for number in range(3):
            job_id = await bench.enqueue("add.job", {"a": number, "b": 1})
            await bench.until("attempt.completed", job_id)
        await _shows(bench, "polling")
        assert not bench.probe.of("listener.restored")


async def test_a_worker_that_listens_past_the_pooler_is_woken_sooner_than_any_poll(
    pooled_url: str, database_url: str
) -> None:
    async with working(pooled_url, database_url) as bench:
        await bench.probe.wait("listener.restored")
        loop = asyncio.get_running_loop()
        for _ in range(3):
            began = loop.time()
            await bench.until("attempt.completed", await bench.enqueue("add.job", {"a": 1, "b": 1}))
            assert loop.time() - began < 3  # a poll comes after 7.5 to 10 s
        await _shows(bench, "listen")
