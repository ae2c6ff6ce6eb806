"""Where a cell of the matrix of cuts is played: a database, a second one, the product on both past a blade.

The product's driver goes past the blade, the test's own goes straight; every write to a token is audited. After each
cell what is left is worked off by a worker of the test's: a job that cannot be is lost. Then the rows are deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.domain.job import ClaimedJob, ClaimToken, JobId, WorkerId
from app.domain.outcome import Completed, SettleAnswer, Settlement
from app.drivers.opening import open_driver
from app.drivers.postgres.database import Database, create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.outbox import PostgresOutbox
from app.drivers.protocol import ClaimRequest, QueueShare
from app.steps.repeat import until_known
from tests.faults.history import audit, check
from tests.support.blade import Blade, past_a_blade
from tests.support.drivers import new_worker
from tests.support.store import Store, store_on

_ROOM = 100
_START = timedelta(seconds=30)
_LET_GO_SECONDS = 30
_OPEN_TRANSACTIONS = """
select pid from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
  and xact_start is not null"""
# The caller's own table, beside the outbox: what a caller's transaction is about.
_BUSINESS = "create table public.sale(id uuid primary key)"


class Bench:
    """Two databases, jobs in the first and the outbox of an application in the second, and every way to them."""

    def __init__(self, *, blade: Blade, straight: Store, apart: Store, engines: tuple[AsyncEngine, ...]) -> None:
        main, other, caller = engines
        self.blade = blade
        self.way = main.url.render_as_string(hide_password=False)  # to the first database, past the blade
        self.straight = straight
        self.apart = apart
        self.driver = PostgresDriver(main, owns_engine=True)
        self.other = Database(other, is_alone=True)
        self.caller = caller  # an application's engine, on the first database

    @property
    def db(self) -> Database:
        """Give the product's way to the first database."""
        return self.driver._db

    def outbox(self) -> PostgresOutbox:
        """Give the outbox beside the jobs to one new process, which has seen nothing of it yet."""
        return PostgresOutbox(self.db)

    def outbox_apart(self) -> PostgresOutbox:
        """Give the outbox of the second database to one new process."""
        return PostgresOutbox(self.other)

    async def warm(self) -> None:
        """Have every connection open: what a statement needs before it is sent is not what is cut."""
        await until_known(self._warm)

    async def _warm(self) -> None:
        await self.driver.ping()
        async with self.other.raw() as conn:
            await conn.execute("select 1")
        async with self.caller.connect() as connection:
            await connection.exec_driver_sql("select 1")

    def forget(self) -> None:
        """Let the process keep nothing in mind of an operation before: jobs that it had called, keys it had met."""
        called = cast("Any", self.driver)._db.called
        called.drop(called.now())
        self.db.limited.forget_keys()

    async def until_let_go(self) -> None:
        """Wait until the servers have ended what was cut: a transaction still open holds rows that sweeps pass over."""
        async with asyncio.timeout(_LET_GO_SECONDS):
            for store in (self.straight, self.apart):
                while await store.fetch(_OPEN_TRANSACTIONS):
                    await asyncio.sleep(0.005)

    async def fingerprint(self) -> str:
        """Give what is stored, in both databases, as one text."""
        return f"{await _fingerprint(self.straight)} {await _fingerprint(self.apart)}"

    async def running(self) -> set[ClaimToken]:
        """Give every claim the store knows of."""
        rows = await self.straight.fetch("select job_id, claim_no, worker, seq from outlast.running")
        return {ClaimToken(JobId(row["job_id"]), row["claim_no"], WorkerId(row["worker"]), row["seq"]) for row in rows}

    async def ids(self) -> set[UUID]:
        """Give every job there is."""
        return {UUID(str(row["id"])) for row in await self.straight.fetch("select id from outlast.job")}

    async def work_off(self, held: set[ClaimToken], *, parked: int) -> None:
        """Complete what is held, and every other job that has not ended, as any worker could; all but `parked`."""
        driver = self.straight.driver
        if held:
            answers = await driver.settle([Settlement(token, Completed(), True) for token in sorted(held)])
            assert set(answers) == {SettleAnswer.SETTLED}, f"claims that are held were answered {answers}"
        while await self._work():
            pass
        left = await self.straight.fetch(
            "select id from outlast.job where id not in (select job_id from outlast.finished)"
        )
        assert len(left) == parked, f"{len(left)} jobs never end: {left}"

    async def _work(self) -> int:
        """Complete all that is ready or waits, as if every time had come; gives how many jobs that were."""
        driver = self.straight.driver
        await self.straight.fetch("update outlast.waiting set due_at = outlast.clock()")
        await driver.promote()
        await self.straight.fetch("update outlast.wait set due_at = outlast.clock() where child_id is null")
        await driver.wake()
        ready = await self.straight.fetch(
            "select r.queue, n.name from outlast.ready r left join outlast.job_name n on n.id = r.name_id"
        )
        if not ready:
            return 0
        worker = await driver.register_worker(new_worker())
        shares = tuple(QueueShare(queue=queue, room=_ROOM) for queue in {row["queue"] for row in ready})
        names = frozenset({row["name"] for row in ready})
        claimed = await driver.claim(ClaimRequest(worker_id=worker, shares=shares, names=names, room=_ROOM))
        assert len(claimed) == len(ready), f"{len(ready)} jobs are ready, {len(claimed)} can be claimed"
        await driver.settle([_done(job) for job in claimed])
        return len(claimed)

    async def check(self, *, acked: set[JobId]) -> None:
        """Hold what happened to every rule."""
        await check(self.straight, (), acked=acked)
        ids = await self.ids()
        assert ids <= acked, f"jobs that no caller was told of: {ids - acked}"
        for store in (self.straight, self.apart):
            stuck = await store.fetch("select id, state from outlast.outbox where state < 2")
            assert not stuck, f"rows of an outbox that nobody publishes: {stuck}"

    async def empty(self) -> None:
        """Delete every row but the names of job types, whose ids a driver remembers."""
        for store in (self.straight, self.apart):
            await _run(store, "; ".join(f"delete from {table}" for table in await _tables(store, all_but="job_name")))
        await _run(self.straight, "delete from outlast.test_audit")


def _done(job: ClaimedJob) -> Settlement:
    return Settlement(job.token, Completed(), True, is_child=job.parent_id is not None, has_waits=True)


async def _tables(store: Store, *, all_but: str = "") -> list[str]:
    rows = await store.fetch(
        "select schemaname || '.' || tablename as name from pg_tables where schemaname in ('outlast', 'public')"
        " and tablename not in ('test_audit', 'alembic_version', $1) order by name",
        all_but,
    )
    return [row["name"] for row in rows]


async def _run(store: Store, sql: str) -> None:
    await store.driver._db.run(lambda conn: conn.execute(sql))


async def _fingerprint(store: Store) -> str:
    parts = [
        f"(select coalesce(string_agg(t::text, ' ' order by t::text), '') from {table} t)"
        for table in await _tables(store)
    ]
    rows = await store.fetch(f"select md5(concat_ws('|', {', '.join(parts)})) as print")
    return str(rows[0]["print"])


@asynccontextmanager
async def bench_on(
    make_database: Callable[..., str], folder: Path, *, patience: timedelta = timedelta(seconds=15)
) -> AsyncIterator[Bench]:
    """Open a bench; a statement of the product gives up after `patience` and a second."""
    blade = Blade()
    urls = make_database(), make_database()
    places = folder / "jobs", folder / "apart"
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(store_on(url)) for url in urls]
        await audit(stores[0])
        for store in stores:
            await _run(store, _BUSINESS)
        ways = []
        for url, place in zip(urls, places, strict=True):
            place.mkdir(parents=True)
            ways.append((await stack.enter_async_context(past_a_blade(url, place, blade))).url)
        bench = Bench(
            blade=blade, straight=stores[0], apart=stores[1], engines=_engines(ways[0], ways[1], patience=patience)
        )
        stack.push_async_callback(bench.caller.dispose)
        stack.push_async_callback(_close, bench)
        await open_driver(bench.driver, within=_START)
        yield bench


def _engines(main: str, other: str, *, patience: timedelta) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
    return (
        create_engine(main, pool_size=1, command_timeout=patience),
        create_engine(other, pool_size=1, command_timeout=patience),
        create_async_engine(
            main,
            pool_size=1,
            max_overflow=0,
            connect_args={"command_timeout": patience.total_seconds() + 1},
        ),
    )


async def _close(bench: Bench) -> None:
    await bench.driver.close()
    await bench.other.close()
    await bench.other.engine.dispose()
