"""No list and no page of the dashboard does work that grows with the table: pages of it that are touched beside ten
thousand jobs and beside a hundred thousand.

Every statement that a look sends is explained with what it was sent, as the server runs it. Where all that is asked for
is common, a bound on candidates is what holds; it is lowered here, so that both stores reach it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.dashboard.pages import jobs
from app.domain.state import State
from app.drivers.postgres import audit, counting, dead_letters, list_sources, listing, listing_by_time, stats
from app.drivers.postgres.connect import connect
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.reading import ListQuery, TimeOrder, TimeSort
from benchmarks.mixed import fill
from tests.postgres.meter import Meter, buffers
from tests.postgres.pages import administrator
from tests.postgres.ui import fill_beside, pages_of

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(240)]

_SCANNED = 500
# What lives is counted whole, and what has ended up to a bound: once in two seconds for all who look, whoever they are.
_COUNT = "with ranks as materialized"
_OTHERS = frozenset(State) - {State.READY}

LISTS = {
    "all": ListQuery(),
    "a key": ListQuery(key="order:5000"),
    "a common tag": ListQuery(tags_any=("eu",)),
    "a rare tag": ListQuery(tags_any=("vip",), limit=5),
    "some tags": ListQuery(tags_any=("eu", "vip", "none")),
    "all of two tags": ListQuery(tags_all=("eu", "vip"), limit=5),
    "a tag nobody has": ListQuery(tags_any=("none",)),
    "an error": ListQuery(error_code="MAILBOX"),
    "an error nobody has": ListQuery(error_code="NONE"),
    "a tenant": ListQuery(tenant="acme"),
    "a rare tenant": ListQuery(tenant="rare", limit=5),
    "a tenant nobody is": ListQuery(tenant="none"),
    "a rare name": ListQuery(name="demo.rare"),
    "a name nobody has": ListQuery(name="demo.none"),
    "a queue": ListQuery(queue="queue-3"),
    "the usual tenant": ListQuery(tenant="default"),
    **{f"{state} jobs": ListQuery(states=frozenset({state}), limit=5) for state in sorted(_OTHERS)},
}
ORDERS = {
    "delayed jobs by time": (State.DELAYED, TimeSort.RUN_AT),
    "dead jobs by time": (State.DEAD, TimeSort.FINISHED_AT),
}
Look = Callable[[], Awaitable[object]]


def _looks(driver: PostgresDriver) -> dict[str, Look]:
    def listed(query: ListQuery) -> Look:
        return lambda: driver.list(query)

    def by_time(state: State, sort: TimeSort) -> Look:
        return lambda: driver.list_by_time(ListQuery(states=frozenset({state})), TimeOrder(sort=sort))

    looks = {named: listed(query) for named, query in LISTS.items()}
    return looks | {named: by_time(*order) for named, order in ORDERS.items()}


async def _pages(url: str, rows: int) -> dict[str, int]:
    """Give the pages that each list touches in a store of so many jobs."""
    found: dict[str, int] = {}
    async with administrator(url) as admin:
        await admin.execute("truncate outlast.job, outlast.job_name, outlast.finished, outlast.attempt, outlast.ready")
        await admin.execute("truncate outlast.waiting, outlast.running, outlast.suspended, outlast.held, outlast.tag")
        await admin.execute("truncate outlast.worker, outlast.flow restart identity")
        await fill_beside(admin, rows // 10)
        await fill(admin, rows)
    watched = _Watched(url)
    await watched.driver.open()
    connection = await connect(url, application_name="flat")
    await connection.execute("set plan_cache_mode = force_generic_plan")
    async with pages_of(watched.driver, connection) as pages:
        for named, look in (_looks(watched.driver) | pages).items():
            watched.sent.clear()
            await look()
            await asyncio.sleep(0)  # asyncpg tells of a statement in the loop's next round
            assert watched.sent or named in pages, named
            found[named] = 0
            for sql, args in watched.sent.copy():
                await buffers(connection, sql, args)
                found[named] += (await buffers(connection, sql, args))[0]
    await connection.close()
    await watched.driver.close()
    return found


class _Watched(Meter):
    """A driver whose statements are kept with what they were sent."""

    def __init__(self, url: str) -> None:
        self.sent: list[tuple[str, tuple[object, ...]]] = []
        super().__init__(url)

    def _saw(self, record: Any) -> None:
        if '"outlast".' in record.query and "pg_notify" not in record.query and _COUNT not in record.query:
            self.sent.append((record.query, tuple(record.args or ())))


async def test_a_look_touches_as_many_pages_however_many_jobs_there_are(
    lone_url: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    for module in (listing, listing_by_time, counting, list_sources):
        monkeypatch.setattr(module, "SCANNED", _SCANNED)
    bounds = ((list_sources, "WEIGHED"), (dead_letters, "GROUPED"), (audit, "SCANNED"), (stats, "COUNTED_ENDED"))
    for module, most in bounds:
        monkeypatch.setattr(module, most, 200)
    monkeypatch.setattr(jobs, "MOST_EXPORTED", 400)
    monkeypatch.setattr(list_sources, "_MANY_READY", "select true")
    few, many = await _pages(lone_url, 10_000), await _pages(lone_url, 100_000)
    for named in few:
        record_property(named, f"{few[named]} pages, {many[named]} beside ten times the jobs")
    grown = {named: (few[named], many[named]) for named in few if many[named] > 1.3 * few[named] + 40}
    assert grown == {}
