"""Reading is bounded: what lists and counts do when the store holds more than they look at in one go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.job import JobId, WorkerId
from app.domain.outcome import Completed, DeadLettered, Retried
from app.domain.state import DeadReason, State
from app.drivers.postgres import counting, list_sources, listing, stats
from app.drivers.reading import ListQuery
from tests.postgres.arena import Arena
from tests.support.drivers import ERROR

pytestmark = pytest.mark.postgres

FILTERS = {
    "all": ListQuery(),
    "a name": ListQuery(name="demo.rare"),
    "a name nobody has": ListQuery(name="demo.absent"),
    "a tenant": ListQuery(tenant="acme"),
    "ready": ListQuery(states=frozenset({State.READY})),
    "running": ListQuery(states=frozenset({State.RUNNING})),
    "done": ListQuery(states=frozenset({State.DONE})),
    "dead": ListQuery(states=frozenset({State.DEAD})),
    "ended": ListQuery(states=frozenset({State.DONE, State.DEAD, State.CANCELLED})),
    "live": ListQuery(states=frozenset({State.READY, State.DELAYED, State.RUNNING, State.HELD})),
    "every state": ListQuery(states=frozenset(State)),
    "a state and a name": ListQuery(states=frozenset({State.READY, State.DONE}), name="demo.rare"),
    "a tag": ListQuery(tags_any=("eu",)),
    "tags": ListQuery(tags_any=("eu", "none", "vip")),
    "all of the tags": ListQuery(tags_all=("eu", "vip")),
    "a tag and a state": ListQuery(tags_any=("vip", "eu"), states=frozenset({State.DEAD, State.RUNNING})),
    "an error": ListQuery(error_code=ERROR.code),
    "an error and a tag": ListQuery(error_code=ERROR.code, tags_any=("eu",)),
    "a key": ListQuery(key="k"),
}
TAGS = (("eu",), ("eu", "vip"), (), ("vip",))


async def pages(arena: Arena, query: ListQuery) -> AsyncIterator[tuple[JobId, ...]]:
    """Follow the cursors to the end."""
    cursor = query.before
    while True:
        page = await arena.driver.list(replace(query, before=cursor))
        yield tuple(view.id for view in page.items)
        if page.next_after is None:
            return
        assert cursor is None or page.next_after < cursor
        cursor = page.next_after


async def fill(arena: Arena) -> None:
    """Put 40 jobs of two types and tenants into every state there is."""
    worker = await arena.register()
    for number in range(40):
        name = "demo.rare" if number % 9 == 0 else "demo.job"
        tenant = "acme" if number % 7 == 0 else "default"
        more: dict[str, Any] = {"tenant": tenant, "tags": TAGS[number % 4]}
        if number == 30:
            more["key"] = "k"
        match number % 5:
            case 0:
                await arena.enqueue(name, **more, queue="waits")
            case 1:
                await arena.enqueue(name, **more, delay=timedelta(minutes=1))
            case 2:
                await arena.running(worker, name=name, **more)
            case 3:
                held = await arena.running(worker, name=name, **more)
                await arena.close_attempt(held.token, Completed())
            case _:
                held = await arena.running(worker, name=name, **more)
                await arena.close_attempt(held.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))


async def every_page_back(arena: Arena, query: ListQuery) -> list[JobId]:
    """Follow the other cursors from the end to the beginning, and give what they led along, newest first."""
    found: list[JobId] = []
    cursor = JobId(UUID(int=0))
    while True:
        page = await arena.driver.list(replace(query, after=cursor))
        found = [view.id for view in page.items] + found
        if page.newer_than is None:
            return found
        assert page.newer_than > cursor
        cursor = page.newer_than


@pytest.mark.parametrize("many_ready", [False, True])
async def test_short_pages_lead_to_every_match_in_order(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, *, many_ready: bool
) -> None:
    await fill(arena)
    whole = {named: [list(page) async for page in pages(arena, query)] for named, query in FILTERS.items()}
    assert [len(found) for found in whole.values()] == [1] * len(FILTERS)
    monkeypatch.setattr(listing, "SCANNED", 3)
    if many_ready:
        monkeypatch.setattr(list_sources, "_MANY_READY", "select true")
    for named, query in FILTERS.items():
        bits = [page async for page in pages(arena, replace(query, limit=2))]
        assert [job_id for page in bits for job_id in page] == whole[named][0], named
        assert all(len(page) <= 2 for page in bits)
        assert await every_page_back(arena, replace(query, limit=2)) == whole[named][0], named


async def test_a_failure_that_came_again_is_listed_once_wherever_a_page_ends(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCANNED", 3)
    worker = await arena.register()
    failed = {await _failed(arena, worker, times=times) for times in (1, 4, 2, 5)}
    query = ListQuery(error_code=ERROR.code, limit=1)
    found = [job_id async for page in pages(arena, query) for job_id in page]
    assert found == sorted(failed, reverse=True) == await every_page_back(arena, query)


async def _failed(arena: Arena, worker: WorkerId, *, times: int) -> JobId:
    job_id = await arena.enqueue(max_attempts=10)
    for _ in range(times):
        held = await arena.claim_one(worker)
        await arena.close_attempt(held.token, Retried(error=ERROR, delay=timedelta()))
        await arena.driver.promote(10)
    return job_id


async def test_a_caller_of_one_tenant_is_led_past_the_jobs_of_others(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it may not see is behind the wall; how far was looked is found before it."""
    monkeypatch.setattr(listing, "SCANNED", 3)
    monkeypatch.setattr(counting, "SCANNED", 3)
    own = [await arena.enqueue(tenant="default" if number % 5 == 0 else "acme") for number in range(16)][::-5]
    query = ListQuery(tenant="default", limit=2)
    bits = [page async for page in pages(arena, query)]
    assert [job_id for page in bits for job_id in page] == own
    assert len(bits) > 4
    assert await every_page_back(arena, query) == own
    assert (await arena.driver.count_jobs(query)).is_capped
    theirs = [page async for page in pages(arena, replace(query, tenant="acme"))]
    assert [len(page) for page in theirs] == [2] * 6


async def test_counts_of_ended_jobs_stop_at_their_bound(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(arena)
    counted = (await arena.driver.stats()).by_state
    assert (counted[State.DONE], counted[State.DEAD], counted[State.READY]) == (8, 8, 8)
    monkeypatch.setattr(stats, "COUNTED_ENDED", 5)
    bounded = (await arena.driver.stats()).by_state
    assert (bounded[State.DONE], bounded[State.DEAD], bounded[State.READY]) == (5, 5, 8)
