"""What jobs cost, held by figures without noise: statements, WAL bytes and buffers. A bound says why it is what it is.

A change that makes one of them dearer has to say so here; one that makes them cheaper moves the bound down.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from app.domain.job import WorkerId
from app.drivers.postgres.claim import CLAIM_MANY, CLAIM_ONE, columns_of
from app.drivers.postgres.connect import connect, dsn_of
from app.drivers.postgres.low_water import LowWater
from app.drivers.postgres.release import RECONCILE
from tests.postgres.meter import Meter, buffers, metered, pile_finished, pile_ready, wal_position
from tests.support.made import QUEUE, new_job

pytestmark = pytest.mark.postgres

BATCH = 100
ROOM = 50

# --- statements


@pytest.fixture
async def warm(database_url: str) -> AsyncIterator[tuple[Meter, WorkerId]]:
    """A counted driver that has done everything once."""
    async with _warm(database_url) as made:
        yield made


@asynccontextmanager
async def _warm(url: str) -> AsyncIterator[tuple[Meter, WorkerId]]:
    """Open a counted driver whose statements are prepared and whose job types have numbers."""
    async with metered(url) as meter:
        worker = await meter.register()
        await meter.enqueue(BATCH)
        await meter.driver.enqueue(new_job())
        await meter.driver.enqueue(new_job(key="warm"))
        await meter.finish(await meter.claim(worker, 2 * BATCH))
        yield meter, worker


@pytest.mark.parametrize("fields", [{}, {"key": "k"}], ids=["short", "whole"])
async def test_an_enqueued_job_is_one_statement(warm: tuple[Meter, WorkerId], fields: dict[str, str]) -> None:
    meter, _ = warm
    async with meter.counting():
        await meter.driver.enqueue(new_job(**fields))
    assert len(meter.verbs) == 1


async def test_a_batch_is_one_statement(warm: tuple[Meter, WorkerId]) -> None:
    meter, _ = warm
    async with meter.counting():
        await meter.enqueue(BATCH)
    assert len(meter.verbs) == 1


async def test_a_batch_in_which_a_key_may_refuse_stands_between_begin_and_commit(warm: tuple[Meter, WorkerId]) -> None:
    """In a transaction, so that one refused job can take the others back."""
    meter, _ = warm
    async with meter.counting():
        await meter.driver.enqueue_many([new_job(), new_job(key="k")])
    assert [sql.split()[0].strip(";").lower() for sql in meter.verbs] == ["begin", "with", "commit"]


async def test_a_batch_is_claimed_by_one_statement_and_settled_by_another(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    await meter.enqueue(BATCH)
    async with meter.counting():
        claimed = await meter.claim(worker, BATCH)
    assert (len(claimed), len(meter.verbs)) == (BATCH, 1)
    async with meter.counting():
        await meter.finish(claimed)
    assert len(meter.verbs) == 1


async def test_a_look_that_finds_nothing_is_one_statement(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    async with meter.counting():
        assert await meter.claim(worker, BATCH) == ()
    assert len(meter.verbs) == 1


async def test_a_hundred_jobs_wake_others_with_fewer_statements_than_calls(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    async with meter.counting():
        await meter.enqueue(BATCH)
        await meter.finish(await meter.claim(worker, BATCH))
        await meter.quiet()
    assert len(meter.statements) - len(meter.verbs) <= 2


# --- WAL


async def _wal_per_job(url: str, jobs: int = 1000) -> tuple[float, float]:
    """Give the bytes of WAL per job of enqueuing, and of claiming and settling by the hundred, on warm tables."""
    async with metered(url) as meter, _admin(url) as admin:
        worker = await meter.register()

        async def cycle() -> tuple[int, int, int]:
            began = await wal_position(admin)
            await meter.enqueue(jobs)
            enqueued = await wal_position(admin)
            while claimed := await meter.claim(worker, BATCH):
                await meter.finish(claimed)
            return began, enqueued, await wal_position(admin)

        await cycle()
        began, enqueued, ended = await cycle()
        return (enqueued - began) / jobs, (ended - enqueued) / jobs


async def test_a_jobs_life_writes_no_more_wal_than_its_rows_and_index_entries_need(lone_url: str) -> None:
    """A payload of 20 bytes, no key. Measured 428 and 581; the room above is for another version's record headers.

    Enqueue: an envelope and a token, each with one index entry. Run to done: the token deleted, a claim inserted with
    one index entry and deleted, an end inserted with one. An index more on one of these is 64 bytes or more.
    """
    enqueued, run = await _wal_per_job(lone_url)
    assert enqueued <= 445
    assert run <= 600


# --- buffers


@asynccontextmanager
async def _admin(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn_of(url))
    try:
        yield connection
    finally:
        await connection.close()


class Claims:
    """Claims under EXPLAIN, each taken back."""

    def __init__(self, connection: Any, worker: WorkerId, name_id: int) -> None:
        self.connection = connection
        self.name_id = name_id
        self.worker = worker

    async def cost(self, sql: str, room: int = ROOM, *, water: LowWater | None = None) -> int:
        """Give the pages one claim of a full `room` touches, the second time."""
        binds = self._binds(room, water)
        await buffers(self.connection, sql, binds)
        pages, rows = await buffers(self.connection, sql, binds)
        assert rows == room + 1, "the rows taken and the header"
        return pages

    async def idle_cost(self, sql: str, *, water: LowWater | None = None) -> int:
        """Give the pages of a claim that finds nothing."""
        pages, rows = await buffers(self.connection, sql, self._binds(ROOM, water))
        assert rows == 1
        return pages

    def _binds(self, room: int, water: LowWater | None) -> tuple[object, ...]:
        stretches = (water or LowWater(monotonic=float, roll=float)).stretches([QUEUE])
        return (self.worker, [QUEUE], [room], [self.name_id], room, True, *columns_of(stretches))

    async def tidy(self) -> None:
        """Do what autovacuum does."""
        await self.connection.execute("vacuum (analyze)")


@pytest.fixture
async def claims(warm: tuple[Meter, WorkerId], database_url: str) -> AsyncIterator[Claims]:
    """Claims on a connection with the driver's settings; no job is ready."""
    async with _claims(database_url, warm[1]) as made:
        yield made


@asynccontextmanager
async def _claims(url: str, worker: WorkerId) -> AsyncIterator[Claims]:
    connection = await connect(url, application_name="costs")
    try:
        name_id = await connection.fetchval("select id from outlast.job_name")
        made = Claims(connection, worker, name_id)
        await made.tidy()
        yield made
    finally:
        await connection.close()


STATEMENTS = pytest.mark.parametrize("sql", [CLAIM_ONE, CLAIM_MANY], ids=["one queue", "several"])

# Per job: its token read and deleted, its claim inserted with one index entry, its envelope found and read.
PER_JOB = 9
# The worker's row, the queue's row, the way down the index.
PER_CLAIM = 25


@STATEMENTS
async def test_an_idle_look_touches_a_handful_of_pages(claims: Claims, sql: str) -> None:
    assert await claims.idle_cost(sql) <= 6


@STATEMENTS
async def test_a_claim_costs_its_jobs_whatever_waits_behind_them(claims: Claims, sql: str) -> None:
    await pile_ready(claims.connection, ROOM, name_id=claims.name_id)
    await claims.tidy()
    assert await claims.cost(sql) <= PER_CLAIM + PER_JOB * ROOM
    await pile_ready(claims.connection, 100_000, name_id=claims.name_id)
    await claims.tidy()
    assert await claims.cost(sql) <= PER_CLAIM + PER_JOB * ROOM


async def _beside_finished(claims: Claims, rows: int) -> None:
    await pile_ready(claims.connection, ROOM, name_id=claims.name_id)
    await pile_finished(claims.connection, rows)
    await claims.tidy()
    assert await claims.cost(CLAIM_ONE) <= PER_CLAIM + PER_JOB * ROOM


async def test_jobs_that_have_ended_cost_a_claim_nothing(claims: Claims) -> None:
    await _beside_finished(claims, 100_000)


@pytest.mark.soak
@pytest.mark.timeout(120)
async def test_a_million_jobs_that_have_ended_cost_a_claim_nothing(claims: Claims) -> None:
    await _beside_finished(claims, 1_000_000)


@asynccontextmanager
async def _dead_entries(claims: Claims, url: str) -> AsyncIterator[None]:
    """A reader's snapshot keeps what is long claimed in the index, in front of what is ready."""
    async with _admin(url) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("select count(*) from outlast.job")
        await pile_ready(claims.connection, 100_000, name_id=claims.name_id)
        await claims.connection.execute("delete from outlast.ready")
        await pile_ready(claims.connection, 5 * ROOM, name_id=claims.name_id)
        yield


async def test_dead_entries_behind_a_pinned_snapshot_are_walked_before_there_is_a_mark(
    claims: Claims, database_url: str
) -> None:
    """Measured 1,700 pages more for 100,000 entries: what the mark is for."""
    async with _dead_entries(claims, database_url):
        assert 1_000 < await claims.cost(CLAIM_ONE) < 2_500


@STATEMENTS
async def test_a_process_that_claims_on_walks_no_dead_entries(lone_url: str, sql: str) -> None:
    """The second claim has the first one confirmed; from the third on a claim costs what it costs on a clean index.

    On a server without neighbours: a transaction of theirs that writes would hold the mark while it lasts.
    """
    few = 5
    async with (
        _warm(lone_url) as (meter, worker),
        _claims(lone_url, worker) as claims,
        _dead_entries(claims, lone_url),
    ):
        unmarked = await claims.cost(sql, few)
        for _ in range(2):
            assert len(await meter.claim(worker, ROOM)) == ROOM
        water = meter.driver._db.low_water
        assert await claims.cost(sql, few, water=water) <= min(PER_CLAIM + PER_JOB * few, unmarked // 10)
        assert await claims.cost(sql, water=water) <= PER_CLAIM + PER_JOB * ROOM
        while await meter.claim(worker, ROOM):
            pass
        assert await claims.idle_cost(sql, water=water) <= 14


async def test_a_reconcile_reads_what_runs_as_it_lies(claims: Claims, database_url: str) -> None:
    """Measured 228 pages; by an index it was 20,025, each of 20,000 dead claims looked at by itself."""
    async with _admin(database_url) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("select count(*) from outlast.job")
        await claims.connection.execute(
            "insert into outlast.running(job_id, seq, worker, queue, rank, name_id)"
            f" select gen_random_uuid(), i, {claims.worker}, '', 1, 1 from generate_series(1, 20000) i"
        )
        await claims.connection.execute("delete from outlast.running")
        pages, rows = await buffers(claims.connection, RECONCILE, (claims.worker, []))
    assert rows == 0
    assert pages <= 1_000
