"""Reading is bounded: what lists and counts do when the store holds more than they look at in one go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.job import JobId
from app.domain.outcome import Completed, DeadLettered
from app.domain.state import DeadReason, State
from app.drivers.postgres import listing, stats
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
}


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
        match number % 5:
            case 0:
                await arena.enqueue(name, tenant=tenant, queue="waits")
            case 1:
                await arena.enqueue(name, tenant=tenant, delay=timedelta(minutes=1))
            case 2:
                await arena.running(worker, name=name, tenant=tenant)
            case 3:
                held = await arena.running(worker, name=name, tenant=tenant)
                await arena.close_attempt(held.token, Completed())
            case _:
                held = await arena.running(worker, name=name, tenant=tenant)
                await arena.close_attempt(held.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))


@pytest.mark.parametrize("many_ready", [False, True])
async def test_short_pages_lead_to_every_match_in_order(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, *, many_ready: bool
) -> None:
    await fill(arena)
    whole = {named: [list(page) async for page in pages(arena, query)] for named, query in FILTERS.items()}
    assert [len(found) for found in whole.values()] == [1] * len(FILTERS)
    monkeypatch.setattr(listing, "SCANNED", 3)
    if many_ready:
        monkeypatch.setattr(listing, "_MANY_READY", "select true")
    for named, query in FILTERS.items():
        bits = [page async for page in pages(arena, replace(query, limit=2))]
        assert [job_id for page in bits for job_id in page] == whole[named][0], named
        assert all(len(page) <= 2 for page in bits)


async def test_counts_of_ended_jobs_stop_at_their_bound(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(arena)
    counted = (await arena.driver.stats()).by_state
    assert (counted[State.DONE], counted[State.DEAD], counted[State.READY]) == (8, 8, 8)
    monkeypatch.setattr(stats, "COUNTED_ENDED", 5)
    bounded = (await arena.driver.stats()).by_state
    assert (bounded[State.DONE], bounded[State.DEAD], bounded[State.READY]) == (5, 5, 8)
