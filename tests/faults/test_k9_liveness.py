"""K9: after the last fault has healed, work goes on as fast as before, and nothing has been forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.devdb import DevPostgres
from app.domain.state import State
from tests.faults.history import audit, check
from tests.faults.liveness import (
    RESTART_SECONDS,
    load_on,
    nothing_waits,
    orphans_of,
    recovered,
    restarted,
    usual,
)
from tests.support.outage import service_on
from tests.support.processes import SLACK, eventually
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(180)]

DOWN_SECONDS = 1.0
# Fewer than one worker's places: what is counted is the time jobs take, not the processors of the machine.
DEPTH = 8


@pytest.mark.long
async def test_work_goes_on_as_before_after_a_restart_of_the_server_and_a_killed_worker(
    own_postgres: DevPostgres, folder: Path
) -> None:
    async with service_on(own_postgres, folder) as (fleet, store):
        await audit(store)
        victim, survivor = fleet.worker(), fleet.worker()
        for worker in (victim, survivor):
            await worker.ready()
        async with load_on(store, depth=DEPTH) as load:
            await eventually(lambda: len(load.acked) > 2 * DEPTH, "jobs go round")
            before = await usual(store)
            await asyncio.to_thread(own_postgres.stop, "immediate")
            await asyncio.sleep(DOWN_SECONDS)  # the outage itself
            await asyncio.to_thread(own_postgres.start)
            await recovered(store, before)
            await nothing_waits(store)
            await _busy(store, victim.pid)
            victim.kill()
            orphans = await orphans_of(store, victim.pid)
            assert orphans
            await recovered(store, before)
            await nothing_waits(store)
        await store.all_until(load.acked, State.DONE)
        effects = fleet.ledger.events("effect")
        restarted(orphans, effects)
        late = [
            replace(event, wall=event.wall + SLACK * RESTART_SECONDS) if event.epoch != 1 else event
            for event in effects
        ]
        with pytest.raises(AssertionError, match="restarted late"):
            restarted(orphans, late)
        with pytest.raises(AssertionError, match="restarted late"):
            restarted(orphans, [event for event in effects if event.epoch == 1])
        await check(store, fleet.ledger.events(), acked=load.acked)
        await _a_stall_is_noticed(store, before)


async def _busy(store: Store, pid: int) -> None:
    """Wait until a worker has jobs in hand."""

    async def has_some() -> bool:
        return len(await orphans_of(store, pid)) > 1

    await eventually(has_some, "the worker has jobs in hand")


async def _a_stall_is_noticed(store: Store, before: int) -> None:
    """Nobody claims: the rules of liveness say so."""
    await store.driver.pause_queue("default", by="test")
    async with load_on(store, depth=DEPTH):
        with pytest.raises(AssertionError, match="jobs in 2 s before the fault, after it 0 at best"):
            await recovered(store, before, within=0)
        with pytest.raises(AssertionError, match="the oldest ready job waits"):
            await nothing_waits(store, within=0)
    await store.driver.resume_queue("default")
