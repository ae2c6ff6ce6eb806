"""Reads of many rows for those who wait: they end by the bound, on the server too, and leave room for who writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from app.domain.audit import AuditQuery
from app.domain.errors import DriverUnavailable, OutlastError, QueryTooSlow
from app.domain.event import EventQuery
from app.domain.outcome import CancelVerdict
from app.domain.state import State
from app.domain.waited import LOOK_SECONDS, waited_for
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.database import Raw
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.look import look
from app.drivers.postgres.tenant_wall import behind
from app.drivers.reading import ListQuery
from tests.support.drivers import DriverEnv, new_job, postgres_env

pytestmark = pytest.mark.postgres

BOUND = 0.15
PATIENT = 60.0
_OURS = """
select pid, state, query from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend' order by pid"""

_HELD = """
select count(*) from pg_locks l join pg_database d on d.oid = l.database
where not l.granted and d.datname = current_database()"""


class Place:
    """A store with few connections, and a connection that stands beside them."""

    def __init__(self, env: DriverEnv, beside: Any) -> None:
        assert isinstance(env.driver, PostgresDriver)
        self.env = env
        self.driver = env.driver
        self.db = env.driver._db
        self.beside = beside

    @asynccontextmanager
    async def locked(self, table: str = "outlast.job") -> AsyncIterator[None]:
        """Let nobody read a table."""
        async with self.beside.transaction():
            await self.beside.execute(f"lock table {table} in access exclusive mode")
            yield

    async def waiting(self, count: int) -> None:
        """Wait until so many statements of the store wait for a lock."""
        async with asyncio.timeout(20):
            while await self.beside.fetchval(_HELD) < count:
                await asyncio.sleep(0.002)


@pytest.fixture
async def place(database_url: str) -> AsyncIterator[Place]:
    async with postgres_env(database_url, pool_size=4) as env:
        beside = await asyncpg.connect(dsn_of(database_url))
        try:
            yield Place(env, beside)
        finally:
            await beside.close()


READS: dict[str, Callable[[PostgresDriver], Awaitable[object]]] = {
    "list": lambda driver: driver.list(ListQuery()),
    "list of one tenant": lambda driver: driver.list(ListQuery(tenant="acme", states=frozenset({State.READY}))),
    "count": lambda driver: driver.count_jobs(ListQuery(queue="q")),
    "queues": lambda driver: driver.queues(),
    "stats": lambda driver: driver.stats(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_read_that_takes_too_long_is_ended_on_the_server(
    place: Place, read: Callable[[PostgresDriver], Awaitable[object]]
) -> None:
    job = await place.env.driver.enqueue(new_job())
    with waited_for():
        await read(place.driver)
    before = {row["pid"] for row in await place.beside.fetch(_OURS)}
    place.db.look_seconds = BOUND
    async with place.locked("outlast.job, outlast.ready"):
        with waited_for(), pytest.raises(QueryTooSlow) as refused:
            await read(place.driver)
        after = {row["pid"]: row["state"] for row in await place.beside.fetch(_OURS)}
    assert (refused.value.code, refused.value.retryable) == ("QUERY_TOO_SLOW", True)
    assert "0.15 s" in refused.value.cause
    assert "narrow the filter" in refused.value.fix
    assert before <= set(after), "the connection went back"
    assert {after[pid] for pid in before} == {"idle"}, "nothing is left running"
    async with place.db.raw() as conn:
        assert await conn.fetchval("show statement_timeout") == "15s", "clean"
        assert not conn.is_in_transaction()  # type: ignore[attr-defined]  # asyncpg's
    place.db.look_seconds = PATIENT
    with waited_for():
        await read(place.driver)
        assert [view.id for view in (await place.driver.list(ListQuery())).items] == [job.id]


async def test_nobodys_read_takes_its_time_and_no_turn(place: Place) -> None:
    """What workers and commands read: no transaction, no bound but the connection's own."""
    place.db.look_seconds = 0.0
    seen: list[object] = []

    async def plain(conn: Raw) -> None:
        seen.extend((await conn.fetchval("show statement_timeout"), conn.is_in_transaction()))  # type: ignore[attr-defined]

    await place.db.look_slots.acquire()
    await place.db.look_slots.acquire()
    await look(place.db, lambda db: db.run(plain))
    assert seen == ["15s", False]
    with waited_for(), waited_for(is_so=False):
        assert (await place.driver.list(ListQuery())).items == ()
        assert (await place.driver.stats()).by_state[State.READY] == 0


async def test_enqueue_and_cancel_go_through_while_reads_have_all_they_may(place: Place) -> None:
    """Two of four connections: ten who read, held by a lock, leave the others to those who act."""
    place.db.look_seconds = PATIENT
    job = await place.env.driver.enqueue(new_job())
    async with place.locked("outlast.audit"):
        with waited_for():
            reads = [asyncio.create_task(place.driver.audit(AuditQuery(limit=10))) for _ in range(10)]
        await place.waiting(2)
        async with asyncio.timeout(20):
            other = await place.env.driver.enqueue(new_job())
            verdict = await place.env.driver.cancel(job.id, reason="enough")
            assert (await place.env.driver.describe(other.id)) is not None
        assert verdict is CancelVerdict.CANCELLED_BEFORE_START
        assert await place.beside.fetchval(_HELD) == 2
        assert not any(read.done() for read in reads)
    assert [page.items for page in await asyncio.gather(*reads)] == [()] * 10


async def test_who_waits_for_a_turn_waits_no_longer_than_the_bound(place: Place) -> None:
    place.db.look_seconds = PATIENT
    async with place.locked("outlast.event"):
        with waited_for():
            held = [asyncio.create_task(place.driver.events(EventQuery(limit=10))) for _ in range(2)]
            await place.waiting(2)
            place.db.look_seconds = 0.01
            with pytest.raises(QueryTooSlow, match="other reads were before it"):
                await place.driver.list(ListQuery())
    assert await asyncio.gather(*held) == [(), ()]
    place.db.look_seconds = PATIENT
    with waited_for():
        assert (await place.driver.list(ListQuery())).items == ()


async def test_the_bound_is_of_all_statements_of_a_read_together(place: Place) -> None:
    """The second is told what the first has left; one that has nothing left is not begun."""
    limits: list[int] = []

    async def twice(conn: Raw) -> None:
        for _ in range(2):
            limits.append(int(await conn.fetchval("select setting from pg_settings where name = 'statement_timeout'")))
            await conn.execute("select pg_sleep(0.02)")

    with waited_for():
        await look(place.db, lambda db: db.run(twice))
    assert LOOK_SECONDS * 1_000 >= limits[0] > limits[1] + 19

    async def late(conn: Raw) -> None:
        await asyncio.sleep(0.02)
        await conn.execute("select 1")
        raise AssertionError("nothing is begun after the bound")

    with waited_for(), pytest.raises(QueryTooSlow):
        await look(place.db, lambda db: db.run(late), seconds=0.01)


async def test_the_wall_between_tenants_stands_in_a_bounded_read(place: Place) -> None:
    """In the one transaction there is, with the limit in force on both sides; nothing of either stays."""

    async def who(conn: Raw) -> tuple[str, str]:
        return await conn.fetchval("select current_user"), await conn.fetchval("show statement_timeout")

    with waited_for():
        user, limit = await look(place.db, lambda db: behind(db, "acme", who))
        assert user == place.db.api_role
        assert limit != "15s"
        other = await place.env.driver.enqueue(new_job(tenant="other"))
        assert (await place.driver.list(ListQuery(tenant="acme"))).items == ()
        assert [view.id for view in (await place.driver.list(ListQuery(tenant="other"))).items] == [other.id]
    async with place.db.raw() as conn:
        assert await who(conn) != (user, limit)
        assert (await who(conn))[1] == "15s"


async def test_a_pool_of_one_reads_and_writes(database_url: str) -> None:
    async with postgres_env(database_url, pool_size=1) as env:
        job = await env.driver.enqueue(new_job())
        with waited_for():
            pages = await asyncio.gather(*(env.driver.list(ListQuery(tenant="default")) for _ in range(4)))
        assert [[view.id for view in page.items] for page in pages] == [[job.id]] * 4


async def test_no_connection_is_no_slow_query(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.drivers.postgres.look.LATE_SECONDS", 0.01)
    place.db.look_seconds = 0.01
    async with place.db.raw(), place.db.raw(), place.db.raw(), place.db.raw():
        with waited_for(), pytest.raises(DriverUnavailable, match="gave no connection"):
            await place.driver.list(ListQuery())


async def test_a_closed_driver_says_so(place: Place) -> None:
    await place.driver.close()
    with waited_for(), pytest.raises(OutlastError, match="closed"):
        await place.driver.list(ListQuery())
