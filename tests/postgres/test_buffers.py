"""Pages that hot statements touch, whatever else the store holds: waiting, ended, or dead behind a reader's snapshot.

On a server without neighbours and autovacuum: the figures are the same every time, and the bounds are what was measured
and a twentieth. A change that makes a statement dearer has to say so here; one that makes it cheaper moves the bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from app.drivers.postgres.cancel import _CANCEL
from app.drivers.postgres.describe import _DESCRIBE
from app.drivers.postgres.due import _DUE
from app.drivers.postgres.due_mark import DueMark
from app.drivers.postgres.promote import PROMOTE
from app.drivers.postgres.release import RECONCILE
from tests.postgres.meter import pile_finished, pile_ready, pile_running, pile_tokens, pile_waiting
from tests.postgres.pages import ALONE, CLAIMS, FUSED, ROOM, Pages, administrator, open_pages
from tests.support.made import new_job
from tests.support.postgres import chosen_version

pytestmark = pytest.mark.postgres

each_claim = pytest.mark.parametrize("verb", CLAIMS)

# A claim of fifty. Per job: its token read and deleted, its claim inserted with two index entries, its envelope found
# and read. Several queues are looked at once more, for how many of each are next; with nothing behind, to their ends.
CLAIM = {"one queue": 459, "several": 464}
TO_THE_END = 509
# Settling fifty: the claim found and deleted, an end and its index entry; and, where other outcomes are possible, the
# envelope asked for a key. Since version 16, inserts find their page with fewer looks.
SETTLE = {"settle": 354, "done": 249} if chosen_version() != "15" else {"settle": 403, "done": 298}
CANCEL = 26
DESCRIBE = 20
PROMOTE_HUNDRED = 806
# Of these, 137 are all there is of the table of what runs: it is read as it lies.
DUE = 155
# Twenty thousand claims that were long settled: the pages they lie on.
RECONCILE_BEHIND = 248
# In an index that dead entries have made taller: a page more for each way down.
CLAIM_BEHIND = {"one queue": 516, "several": 573}
PROMOTE_BEHIND = 908


def about(measured: float) -> float:
    """Give the bound for a measured figure."""
    return measured * 1.05


@pytest.fixture
async def pages(lone_url: str) -> AsyncIterator[Pages]:
    """Statements to be explained; nothing is ready."""
    async with open_pages(lone_url) as made:
        yield made


def _alone(verb: str) -> str:
    """Give the claim in a statement that may settle, too."""
    return "one queue" if verb.endswith("one queue") else "several"


async def _costs_what_it_takes(pages: Pages) -> None:
    """Claims cost their jobs, settles their own, and one statement that does both what they cost apart."""
    for verb, bound in SETTLE.items():
        assert await pages.of_settle(verb) <= about(bound)
    for verb in CLAIMS:
        assert await pages.of_claim(verb) <= about(CLAIM[_alone(verb)] + await pages.of_settle(verb))


@pytest.mark.parametrize("verb", ALONE)
async def test_an_idle_look_touches_a_handful_of_pages(pages: Pages, verb: str) -> None:
    assert await pages.of_idle_look(verb) <= 5


@each_claim
async def test_a_claim_that_empties_the_queue_costs_its_jobs(pages: Pages, verb: str) -> None:
    await pile_ready(pages.connection, ROOM, name_id=pages.name_id)
    await pages.tidy()
    settle = await pages.of_settle(verb)
    bound = CLAIM["one queue"] if _alone(verb) == "one queue" else TO_THE_END
    assert await pages.of_claim(verb) <= about(bound + settle)


async def test_a_hundred_thousand_jobs_that_wait_behind_cost_nothing(pages: Pages, lone_url: str) -> None:
    await pile_ready(pages.connection, ROOM, name_id=pages.name_id)
    async with administrator(lone_url) as admin:
        await pile_tokens(admin, 100_000, name_id=pages.name_id)
    await pages.tidy()
    await _costs_what_it_takes(pages)
    job_id = (await pages.meter.driver.enqueue(new_job())).id
    assert await pages.of(_CANCEL, job_id, None, "test", False) <= about(CANCEL)
    assert await pages.of(_DESCRIBE, job_id, None) <= about(DESCRIBE)


@pytest.mark.timeout(180)
async def test_a_million_jobs_that_wait_and_a_million_that_have_ended_cost_nothing(pages: Pages, lone_url: str) -> None:
    await pile_ready(pages.connection, ROOM, name_id=pages.name_id)
    async with administrator(lone_url) as admin:
        await pile_tokens(admin, 1_000_000, name_id=pages.name_id)
        await pile_finished(admin, 1_000_000)
    await pages.tidy()
    await _costs_what_it_takes(pages)


# --- what a reader's snapshot keeps


@asynccontextmanager
async def _snapshot(url: str) -> AsyncIterator[None]:
    async with administrator(url) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("select count(*) from outlast.job")
        yield


@asynccontextmanager
async def _dead_tokens(pages: Pages, url: str) -> AsyncIterator[None]:
    """Let what is long claimed lie in the index, in front of what is ready."""
    async with _snapshot(url), administrator(url) as admin:
        await pile_tokens(admin, 100_000, name_id=pages.name_id)
        await admin.execute("delete from outlast.ready")
        await pile_ready(pages.connection, 5 * ROOM, name_id=pages.name_id)
        yield


async def test_dead_entries_are_walked_before_there_is_a_mark(pages: Pages, lone_url: str) -> None:
    """What the mark is for. Measured 1,100 pages for 100,000 entries."""
    async with _dead_tokens(pages, lone_url):
        assert await pages.of_claim("one queue") > CLAIM["one queue"] + 1_000


@each_claim
async def test_a_process_that_claims_on_walks_no_dead_entries(pages: Pages, lone_url: str, verb: str) -> None:
    """The second claim has the first one confirmed; from the third on a claim costs what it costs on a clean index."""
    async with _dead_tokens(pages, lone_url):
        for _ in range(2):
            assert len(await pages.meter.claim(pages.worker, ROOM)) == ROOM
        settle = await pages.of_settle(verb)
        water = pages.meter.driver._db.low_water
        bound = CLAIM_BEHIND[_alone(verb)]
        assert await pages.of_claim(verb, water=water) <= about(bound + settle)
        while await pages.meter.claim(pages.worker, ROOM):
            pass
        assert verb in FUSED or await pages.of_idle_look(verb, water=water) <= 14


async def test_jobs_that_were_promoted_long_ago_cost_the_next_promote_nothing(pages: Pages, lone_url: str) -> None:
    """Two hundred thousand of them. A process that looks for the first time walks them: measured 2,700 pages more."""
    mark = DueMark(monotonic=float, roll=float)
    first = mark.begin(pages)
    async with _snapshot(lone_url), administrator(lone_url) as admin:
        await pile_waiting(admin, 200_000)
        await admin.execute("delete from outlast.waiting")
        mark.learn(await admin.fetchval("select outlast.clock()"))
        await pile_waiting(admin, 100, ago=timedelta(seconds=5))
        assert await _promote(pages, first) > PROMOTE_BEHIND + 2_000
        assert await _promote(pages, mark.begin(pages)) <= about(PROMOTE_BEHIND)
        await admin.execute("delete from outlast.waiting")
        assert await _promote(pages, mark.begin(pages)) <= 10
        assert await pages.of(_DUE, mark.begin(pages), mark.begin(pages)) <= about(DUE)


async def test_a_reconcile_reads_what_runs_as_it_lies(pages: Pages, lone_url: str) -> None:
    """By an index it would be 20,025 pages, as each of 20,000 dead claims is looked at by itself."""
    async with _snapshot(lone_url), administrator(lone_url) as admin:
        await pile_running(admin, 20_000, worker=pages.worker)
        await admin.execute("delete from outlast.running where seq <= 0")
        held = [one.token.fence for one in pages.held]
        assert await pages.of(RECONCILE, pages.worker, held, None) <= about(RECONCILE_BEHIND)


async def test_a_promote_costs_its_jobs(pages: Pages) -> None:
    await pile_waiting(pages.connection, 200)
    assert await _promote(pages, DueMark(monotonic=float, roll=float).begin(pages)) <= about(PROMOTE_HUNDRED)


async def _promote(pages: Pages, after: Any) -> int:
    return await pages.of(PROMOTE, 100, after)
