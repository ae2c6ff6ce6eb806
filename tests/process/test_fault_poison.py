"""A job that takes its worker down every time: it ends as a dead letter, and its neighbours do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.support.processes import Fleet, Service
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]


@asynccontextmanager
async def supervised(fleet: Fleet, count: int) -> AsyncIterator[list[Service]]:
    """Keep so many workers running: one that ends is replaced."""
    started: list[Service] = []

    async def keep() -> None:
        alive: list[Service] = []
        while True:
            alive = [service for service in alive if service.code is None]
            while len(alive) < count:
                alive.append(fleet.worker("--concurrency", "4"))
                started.append(alive[-1])
            await asyncio.sleep(0.02)

    keeper = asyncio.create_task(keep())
    try:
        yield started
    finally:
        keeper.cancel()
        await asyncio.wait({keeper})


async def test_a_poison_job_is_dead_after_its_crashes_and_its_neighbours_complete(fleet: Fleet, store: Store) -> None:
    """P28, P29: contained to `max_crashes` workers; the last of them ran it alone."""
    poison = await store.enqueue("faults.poison")
    neighbours = [await store.enqueue(name) for name in ("faults.hold", "faults.hold_sync") * 10]
    async with supervised(fleet, 2) as workers:
        view = await store.until(poison, within=90)
        assert (view.state, view.state_reason) == (State.DEAD, "crashed_too_often")
        assert view.error is not None
        assert view.error.code == "CRASHED_TOO_OFTEN"
        assert (view.counters.crashes, view.counters.attempt) == (3, 0)
        attempts = await store.attempts(poison)
        assert {attempt.outcome for attempt in attempts} == {OutcomeKind.CRASHED}
        for done in await store.all_until(neighbours):
            assert done.state is State.DONE
            assert done.counters.crashes < done.max_crashes
        killed = [worker for worker in workers if worker.code == -9]
        assert len(killed) == len(attempts), "no worker died of anything else"
        starts = [event for event in fleet.ledger.events("effect", job=poison) if event.type == "invoke"]
        assert len(starts) == view.counters.claim_no == 3
