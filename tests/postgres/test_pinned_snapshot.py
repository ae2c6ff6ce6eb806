"""A reader keeps one snapshot open while many thousand jobs come and go: claims cost what they did, plans stay.

Vacuum may take nothing away meanwhile, so every job leaves its dead rows and entries for good. On a server without
neighbours; `make soak` does it with half a million jobs.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from statistics import median

import pytest

from app.drivers.postgres.connect import connect
from tests.postgres.meter import pile_ready
from tests.postgres.pages import CLAIMS, ROOM, Pages, administrator, open_pages
from tests.postgres.test_plans import HOT, _read_whole, plan

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(1800)]

Record = Callable[[str, object], None]

_BATCH = 500
# In an index that dead entries have made taller: a page more for each way down, and one more by the million.
_FLAT = 1.4
_SAMPLE = 40
_DEAD = "select n_dead_tup from pg_stat_all_tables where relid = 'outlast.ready'::regclass"


@pytest.fixture
async def pages(lone_url: str) -> AsyncIterator[Pages]:
    """Statements to be explained, as the driver sends them."""
    async with open_pages(lone_url) as made:
        yield made


async def _of_claims(pages: Pages) -> dict[str, int]:
    """Give the pages of every claim, by the marks of the process that has claimed all along."""
    water = pages.meter.driver._db.low_water
    return {verb: await pages.of_claim(verb, water=water) for verb in CLAIMS}


async def _churn(pages: Pages, jobs: int) -> list[float]:
    """Let jobs come, be claimed and end, claims alone and behind a settle; gives the seconds of claims alone."""
    meter, took = pages.meter, list[float]()
    for _ in range(jobs // _BATCH):
        await meter.enqueue(_BATCH)
        began = time.perf_counter()
        held = await meter.claim(pages.worker, ROOM)
        took.append(time.perf_counter() - began)
        done = 0
        while held:
            done += len(held)
            held = await meter.finish_and_claim(held, pages.worker, ROOM)
        assert done == _BATCH
    return took


async def _claims_stay_flat(pages: Pages, url: str, jobs: int, record: Record) -> None:
    await _churn(pages, 2 * _BATCH)
    await pile_ready(pages.connection, 5 * ROOM, name_id=pages.name_id)
    for _ in range(2):
        await pages.meter.finish(await pages.meter.claim(pages.worker, ROOM))
    before = await _of_claims(pages)
    async with administrator(url) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("select count(*) from outlast.job")
        await pages.meter.finish(await pages.meter.claim(pages.worker, 5 * ROOM))
        took = await _churn(pages, jobs)
        await pile_ready(pages.connection, 5 * ROOM, name_id=pages.name_id)
        for _ in range(2):
            await pages.meter.finish(await pages.meter.claim(pages.worker, ROOM))
        after = await _of_claims(pages)
        async with administrator(url) as admin:
            await admin.execute("vacuum (analyze)")
            dead = await admin.fetchval(
                "select n_dead_tup from pg_stat_all_tables where relid = 'outlast.ready'::regclass"
            )
        assert dead >= jobs * 0.9, "the snapshot keeps them"
        await _plans_stay(url)
    worse = {verb: (before[verb], pages_now) for verb, pages_now in after.items() if pages_now > before[verb] * _FLAT}
    assert not worse, f"pages of a claim before and after: {worse}"
    first, last = (median(part) * 1e3 for part in (took[:_SAMPLE], took[-_SAMPLE:]))
    said = (
        f"{jobs:,} jobs behind a snapshot: a claim of {ROOM} touches {before['one queue']} pages before and"
        f" {after['one queue']} after; {first:.1f} ms at first, {last:.1f} ms at last"
    )
    record("claims behind a snapshot", said)
    print(said)  # noqa: T201 - for who looks


async def _plans_stay(url: str) -> None:
    """No hot statement is planned as a scan from end to end, whatever the statistics say now."""
    connection = await connect(url, application_name="plans")
    try:
        await connection.execute("set plan_cache_mode = force_generic_plan")
        found = {verb: _read_whole(verb, await plan(connection, sql)) for verb, sql in HOT.items()}
    finally:
        await connection.close()
    assert {verb: scans for verb, scans in found.items() if scans} == {}


async def test_claims_stay_flat_while_ten_thousand_jobs_churn_behind_a_snapshot(
    pages: Pages, lone_url: str, record_property: Record
) -> None:
    await _claims_stay_flat(pages, lone_url, 10_000, record_property)


@pytest.mark.soak
async def test_claims_stay_flat_while_half_a_million_jobs_churn_behind_a_snapshot(
    pages: Pages, lone_url: str, record_property: Record
) -> None:
    await _claims_stay_flat(pages, lone_url, 500_000, record_property)
