"""The server stops in order, at once, by force, or loses one session: nobody's job pays for it.

Idle and busy workers come back by themselves, quietly, and find what became due meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from app.cli.devdb import DevPostgres
from app.domain.state import State
from tests.faults.history import audit, check
from tests.support.outage import (
    Meter,
    answers,
    kill_backend,
    nothing_counted,
    one_job_a_key,
    producing,
    running,
    service_on,
)
from tests.support.processes import LEASE, Service, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres]

FAST, IMMEDIATE, KILLED, ONE_BACKEND = "fast", "immediate", "killed", "one backend"
MOMENT = 1.0
QUIET = {"OUTLAST_LOG_LEVEL": "info"}
MOST_CPU = 0.2  # of one processor, while there is nothing to do but to wait
WORKERS = 2


async def _down(server: DevPostgres, how: str, seconds: float) -> None:
    """Take the server away; one that lost a session is back by itself."""
    if how == ONE_BACKEND:
        await kill_backend(server, "outlast heartbeat")
        await eventually(lambda: answers(server), "the server has recovered")
        return
    if how == KILLED:
        await asyncio.to_thread(server.kill)
    else:
        await asyncio.to_thread(server.stop, "fast" if how == FAST else "immediate")
    await asyncio.sleep(seconds)  # the outage itself
    await asyncio.to_thread(server.start)


@pytest.mark.timeout(150)
async def test_a_moment_without_the_server_fails_no_job_and_loses_none(own_postgres: DevPostgres, folder: Path) -> None:
    async with service_on(own_postgres, folder) as (fleet, store):
        await audit(store)
        workers = [await fleet.worker(**QUIET).ready() for _ in range(WORKERS)]
        due = [await store.enqueue("faults.hold", delay=timedelta(seconds=n / 10)) for n in range(50)]
        held = []
        async with producing(store) as producer:
            for how in (FAST, IMMEDIATE, KILLED, ONE_BACKEND):
                held += await running(fleet, store, [f"after {how}"])
                await _down(own_postgres, how, MOMENT)
                fleet.ledger.open(f"after {how}")
                await _is_found(store, how)
        await nothing_counted(store, [*held, *due, *producer.acked.values()])
        report(f"{len(producer.acked)} produced, {producer.unanswered} calls did not come back")
        await one_job_a_key(store, producer)
        await _leave(workers)
        await check(store, fleet.ledger.events(), acked=[*held, *due, *producer.acked.values()])


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        pytest.param(KILLED, 3 * LEASE, marks=pytest.mark.timeout(120)),
        *(
            pytest.param(how, 60.0, marks=[pytest.mark.soak, pytest.mark.timeout(240)])
            for how in (FAST, IMMEDIATE, KILLED)
        ),
    ],
)
@pytest.mark.long
async def test_an_outage_of_leases_costs_nothing_and_is_waited_for_quietly(
    own_postgres: DevPostgres, folder: Path, how: str, seconds: float
) -> None:
    async with service_on(own_postgres, folder) as (fleet, store):
        await audit(store)
        workers = [await fleet.worker(**QUIET).ready() for _ in range(WORKERS)]
        held = await running(fleet, store, ["during", "after"])
        async with producing(store) as producer:
            await eventually(lambda: len(producer.acked) > WORKERS, "jobs are produced")
            outage = asyncio.create_task(_down(own_postgres, how, seconds))
            await eventually(lambda: own_postgres.pid is None, "the server is gone")
            meters, began = [Meter(worker) for worker in workers], time.monotonic()
            fleet.ledger.open("during")
            await eventually(lambda: outage.done() or time.monotonic() - began > seconds, "it is over", 2 * seconds)
            lasted = time.monotonic() - began
            used = [(meter.cpu_seconds, meter.complaints()) for meter in meters]
            await outage
            fleet.ledger.open("after")
            await _is_found(store, how)
        for cpu_seconds, complaints in used:
            report(f"{cpu_seconds / lasted:.1%} of a processor in {lasted:.1f} s, and said {dict(complaints)}")
            assert cpu_seconds < MOST_CPU * lasted
            assert complaints, "an outage is said"
            # Each kind of trouble is said at once when it begins; after that all together stay below a line a second.
            assert complaints.total() - len(complaints) <= lasted
        report(f"{len(producer.acked)} produced, {producer.unanswered} calls did not come back")
        assert producer.unanswered
        await nothing_counted(store, [*held, *producer.acked.values()])
        await one_job_a_key(store, producer)
        await _leave(workers)
        await check(store, fleet.ledger.events(), acked=[*held, *producer.acked.values()])


async def _is_found(store: Store, how: str) -> None:
    """Enqueue a job now that the server is back, and see it done."""
    ready = time.monotonic()
    job_id = await store.enqueue("faults.hold")
    assert (await store.until(job_id)).state is State.DONE
    report(f"{how}: work goes on {time.monotonic() - ready:.2f} s after the server is ready; promised 5 s")


async def _leave(workers: Sequence[Service]) -> None:
    for worker in workers:
        assert worker.code is None, "an outage ends no worker"
        worker.terminate()
    for worker in workers:
        assert await worker.gone() == 0
