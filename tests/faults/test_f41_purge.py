"""F41: purging while others list, claim and wait for what is purged: nothing fails, and nothing waits for ever."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.domain.job import JobId
from app.domain.outcome import Completed, Settlement
from app.domain.state import State
from app.drivers.postgres import settle_runs
from app.drivers.protocol import ClaimRequest, PurgeQuery, QueueShare
from app.drivers.reading import ListQuery
from tests.support.hands import hired
from tests.support.ledger import Ledger
from tests.support.made import new_worker
from tests.support.processes import eventually
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

_AT_ONCE = timedelta()


async def _child_of(store: Store, parent: JobId) -> JobId:
    """Wait until a run waits for its child, and give it."""
    await store.until(parent, State.SUSPENDED)
    ((child,),) = await store.fetch("select id from outlast.job where parent_id = $1", parent)
    return JobId(child)


async def _end(store: Store, child: JobId) -> None:
    """End a child as a worker of another queue does."""
    worker = await store.driver.register_worker(new_worker(queues=("children",), lease_ms=60_000))
    shares = (QueueShare(queue="children", room=1),)
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({"runs.double"}), room=1)
    (claimed,) = await store.driver.claim(request)
    assert claimed.token.job_id == child
    await store.driver.settle([Settlement(claimed.token, Completed(result="8"), is_child=True)])


async def test_a_child_stays_until_its_parent_has_heard_of_its_end(
    store: Store, ledger: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever settled the child died before it told anybody, and retention is shorter than the search for such ends."""
    del ledger

    async def dies(*_: object) -> None:
        return

    async with hired(database_url):
        parent = await store.enqueue("runs.call")
        child = await _child_of(store, parent)
        with monkeypatch.context() as patched:
            patched.setattr(settle_runs, "tell_parents", dies)
            await _end(store, child)
        assert await store.driver.purge(PurgeQuery(state=State.DONE, older_than=_AT_ONCE)) == 0
        view = await store.until(parent)
    assert (view.state, view.result) == (State.DONE, '"8"')
    assert await store.fetch("select from outlast.wait") == []


async def test_a_purge_leaves_what_is_waited_for(store: Store, ledger: Ledger, database_url: str) -> None:
    del ledger
    async with hired(database_url):
        parent = await store.enqueue("runs.call")
        child = await _child_of(store, parent)
        for state in (State.DONE, State.DEAD, State.CANCELLED):
            assert await store.driver.purge(PurgeQuery(state=state, older_than=_AT_ONCE)) == 0
        await _end(store, child)
        view = await store.until(parent)
        assert (view.state, view.result) == (State.DONE, '"8"')
        assert await store.driver.purge(PurgeQuery(state=State.DONE, older_than=_AT_ONCE)) == 2
    for table in ("job", "step", "wait", "run_line", "progress"):
        assert await store.fetch(f"select from outlast.{table}") == [], table


async def test_pages_are_stable_while_what_they_list_is_purged(store: Store, ledger: Ledger, database_url: str) -> None:
    """Jobs are claimed and run all the while; what is left is listed once, in order, and every page answers."""
    del ledger
    async with hired(database_url, concurrency=4):
        old = [await store.enqueue("runs.double", {"number": number}) for number in range(60)]
        await store.all_until(old)
        kept = [await store.enqueue("faults.fail", {"terminal": True}) for _ in range(20)]
        stop = asyncio.Event()

        async def enqueue() -> None:
            while not stop.is_set():
                await store.enqueue("runs.double", {"number": 1})

        async def purge() -> None:
            while not stop.is_set():
                await store.driver.purge(PurgeQuery(state=State.DONE, older_than=_AT_ONCE, batch=7))

        async with asyncio.TaskGroup() as group:
            for work in (enqueue, purge):
                group.create_task(work())
            await store.all_until(kept)
            for _ in range(10):
                listed = await _all_pages(store)
                assert listed == sorted(set(listed), reverse=True), "each once, newest first"
                assert set(kept) <= set(listed)
            await eventually(lambda: _are_gone(store, old), "the old ones are purged")
            stop.set()


async def _all_pages(store: Store) -> list[JobId]:
    found: list[JobId] = []
    after: JobId | None = None
    while True:
        page = await store.driver.list(ListQuery(limit=7, before=after))
        found += [item.id for item in page.items]
        after = page.next_after
        if after is None:
            return found


async def _are_gone(store: Store, jobs: list[JobId]) -> bool:
    rows = await store.fetch("select from outlast.job where id = any($1)", jobs)
    return not rows
