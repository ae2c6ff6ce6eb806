"""A hundred thousand ended jobs are purged while claims run: a claim touches the pages it always did and gets its rows.

Counts decide; the times of claims, beside a purge and alone, are printed. On a server without neighbours and vacuum:
what was purged lies dead in tables and indexes all the while. `make soak` does it with a million.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from app.domain.retention import Chore, Retention
from app.drivers.postgres import purge
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from tests.postgres.meter import asks, pile_ready
from tests.postgres.pages import ALONE, CLAIMS, ROOM, Pages, administrator, open_pages
from tests.support.made import new_worker

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

Record = Callable[[str, object], None]

# As they come: ids in the order of time, each with its envelope; one in ten has a row of the ledger and a limit.
_ENDED = """
with n as materialized (
  select i, (lpad(to_hex((extract(epoch from outlast.clock() - interval '8 days') * 1000)::bigint), 12, '0') || '7000'
    || '8000' || lpad(to_hex(i), 12, '0'))::uuid as id
  from generate_series(1, $1::int) i),
j as (
  insert into outlast.job(id, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, created_at)
  select id, $2, 'default', 5, 'default', '{"order": 1}', 25, 3, outlast.clock() - interval '8 days' from n),
a as (
  insert into outlast.attempt(job_id, number, outcome, cause, counted)
  select id, 1, 'retried', 'error', true from n where i % 10 = 0),
x as (
  insert into outlast.expiry(job_id, kind, at)
  select id, 1, outlast.clock() + interval '1 day' from n where i % 10 = 0)
insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts, finished_at, worker)
select id, 0, 1, 1, 0, 0, outlast.clock() - interval '7 days 1 hour', 1 from n"""
_BINDS = (Chore.JOBS.value, True, timedelta(), 1000, *purge._binds(Retention().ended))


@pytest.fixture
async def pages(lone_url: str) -> AsyncIterator[Pages]:
    async with open_pages(lone_url) as made:
        yield made


async def _pile_ended(pages: Pages, url: str, rows: int) -> None:
    async with administrator(url) as admin:
        await admin.execute(_ENDED, rows, pages.name_id)
    await pages.tidy()


async def _round(driver: PostgresDriver) -> AsyncIterator[int]:
    """Take the steps of a round; gives what each deleted."""
    while True:
        step = await driver.tidy(Chore.JOBS, Retention(), now=True)
        yield step.deleted
        if step.is_over:
            return


async def _purged_beside_claims(pages: Pages, url: str, rows: int) -> None:
    """Look at the pages of claims before, during and after."""
    await pile_ready(pages.connection, 2 * ROOM, name_id=pages.name_id)
    await _pile_ended(pages, url, rows)
    before = {verb: await pages.of_claim(verb) for verb in CLAIMS}

    async def look() -> None:
        """Claims touch what they did; with a settle, the new ends find their places beside dead ones."""
        for verb, touched in before.items():
            assert await pages.of_claim(verb) <= (touched if verb in ALONE else touched * 1.1), verb

    deleted = steps = 0
    async for count in _round(pages.meter.driver):
        deleted, steps = deleted + count, steps + 1
        if steps % max(1, rows // 10_000) == 0:  # ten times in all
            await look()
    assert deleted == rows
    await look()
    for table in ("attempt", "expiry"):
        assert await pages.connection.fetchval(f"select count(*) from outlast.{table}") == 0


async def test_pages_and_rows_of_a_claim_are_the_same_while_a_hundred_thousand_are_purged(
    pages: Pages, lone_url: str
) -> None:
    await _purged_beside_claims(pages, lone_url, 100_000)


@pytest.mark.soak
async def test_pages_and_rows_of_a_claim_are_the_same_while_a_million_are_purged(pages: Pages, lone_url: str) -> None:
    await _purged_beside_claims(pages, lone_url, 1_000_000)


async def test_a_step_costs_the_same_however_much_lies_dead_before_it(pages: Pages, lone_url: str) -> None:
    """Also behind a snapshot that somebody keeps open: the round goes on at its mark."""
    await _pile_ended(pages, lone_url, 30_000)
    async with administrator(lone_url) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("select count(*) from outlast.job")
        first = await pages.of(pages.meter.driver._db.in_schema(purge._TIDY), *_BINDS)
        for _ in range(28):
            assert (await pages.meter.driver.tidy(Chore.JOBS, Retention(), now=True)).deleted == 1000
        last = await pages.of(pages.meter.driver._db.in_schema(purge._TIDY), *_BINDS)
    assert last <= first * 1.05
    assert first <= 30 * 1000, "thirty pages a job"


async def test_a_round_over_what_stays_reads_it_in_steps_and_rests(pages: Pages, lone_url: str) -> None:
    await _pile_ended(pages, lone_url, 5_000)
    await pages.connection.execute("update outlast.finished set finished_at = outlast.clock()")
    steps = [count async for count in _round(pages.meter.driver)]
    assert steps == [0] * 6
    assert (await pages.meter.driver.tidy(Chore.JOBS, Retention(), rest=timedelta(hours=1), now=True)).deleted == 0


# --- times, which decide nothing


async def _claim_times(driver: PostgresDriver, rounds: int) -> list[float]:
    """Claim and complete, one batch after the other; gives how long each claim took, in milliseconds."""
    worker = await driver.register_worker(new_worker(lease_ms=600_000))
    times = list[float]()
    for _ in range(rounds):
        began = time.perf_counter()
        taken = await driver.claim(asks(worker, ROOM))
        times.append((time.perf_counter() - began) * 1000)
        assert len(taken) == ROOM
    return times


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


async def _claims_beside_a_purge(pages: Pages, url: str, record: Record, *, rows: int, rounds: int) -> None:
    await pile_ready(pages.connection, 2 * (rounds + 1) * ROOM, name_id=pages.name_id)
    await _pile_ended(pages, url, rows)
    drivers = [PostgresDriver(create_engine(url, pool_size=2), owns_engine=True) for _ in range(2)]
    try:
        for driver in drivers:
            await driver.open()
        claimer, purger = drivers
        alone = await _claim_times(claimer, rounds)
        purged: list[int] = []

        async def purge_all() -> None:
            purged.extend([count async for count in _round(purger)])

        began = time.perf_counter()
        work = asyncio.create_task(purge_all())
        beside = await _claim_times(claimer, rounds)
        await work
        seconds = time.perf_counter() - began
    finally:
        for driver in drivers:
            await driver.close()
    assert sum(purged) == rows
    said = (
        f"{rounds} claims of {ROOM}: p99 {_p99(alone):.1f} ms alone, {_p99(beside):.1f} ms beside a purge of"
        f" {rows:,} jobs ({rows / seconds:,.0f} a second)"
    )
    record("claims beside a purge", said)
    print(said)  # noqa: T201 - for who looks


async def test_claims_beside_a_purge_get_all_their_rows(pages: Pages, lone_url: str, record_property: Record) -> None:
    await _claims_beside_a_purge(pages, lone_url, record_property, rows=100_000, rounds=200)


@pytest.mark.soak
async def test_claims_beside_a_purge_of_a_million_get_all_their_rows(
    pages: Pages, lone_url: str, record_property: Record
) -> None:
    await _claims_beside_a_purge(pages, lone_url, record_property, rows=1_000_000, rounds=2_000)


async def test_a_round_rests_ten_times_as_long_as_it_took(pages: Pages, lone_url: str) -> None:
    """By the database's clock, its last step's own time included."""
    await _pile_ended(pages, lone_url, 3_500)
    driver, minimum = pages.meter.driver, timedelta(milliseconds=1)
    while not (await driver.tidy(Chore.JOBS, Retention(), rest=minimum, now=True)).is_over:
        pass
    (row,) = await pages.connection.fetch(
        "select rests_until - round_at as whole, outlast.clock() - round_at as took from outlast.purge_mark"
        " where kind = 'jobs'"
    )
    assert minimum < row["whole"] <= 11 * row["took"]
