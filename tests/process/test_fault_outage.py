"""The database is away for longer than a lease: an outage of the queue's own database is nobody's failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from app.cli.devdb import DevPostgres
from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.support.outage import nothing_counted
from tests.support.postgres import migrate
from tests.support.processes import DRAIN, LEASE, LONG_LEASE, Fleet, Service, client_of, eventually, fleet_on
from tests.support.proxy import proxy_to
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

WATCHDOG = 2.0
ABANDONED = 70
_LAPSE = "update outlast.worker set lease_ms = 2000, lease_until = outlast.clock() where id = $1"
BODIES = ("faults.hold", "faults.hold_sync") * 2


async def test_a_server_down_for_longer_than_a_lease_counts_against_no_job(
    own_postgres: DevPostgres, folder: Path
) -> None:
    """A worker that starts meanwhile has seen no sweep fail: it knows from the server's start that it has to wait."""
    url = own_postgres.dsn()
    await migrate(url)
    with fleet_on(url, folder) as fleet:
        workers = [fleet.worker() for _ in range(2)]
        async with store_on(url) as store:
            await store.publish()
            failing = await store.enqueue("faults.fail", {"times": 1})
            jobs = await _running(fleet, store, workers)
            await store.until(failing)
            await asyncio.to_thread(own_postgres.stop, "immediate")
            workers.append(fleet.worker())
            await _two_leases_pass(fleet)
            await asyncio.to_thread(own_postgres.start)
            await nothing_counted(store, jobs)
            assert (await store.view(failing)).counters.attempt == 2
            await workers[-1].ready()  # a process that is still starting ends by a signal, not in order
            await _all_leave_in_order(workers)


async def test_a_network_cut_for_longer_than_a_lease_counts_against_no_job(fleet: Fleet, store: Store) -> None:
    """The server was there all the time: who could not reach it waits a lease before calling others crashed."""
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        workers = [fleet.worker(OUTLAST_DATABASE_URL=proxy.url) for _ in range(2)]
        jobs = await _running(fleet, store, workers)
        proxy.cut()
        await _two_leases_pass(fleet)
        proxy.heal()
        await nothing_counted(store, jobs)
        await _all_leave_in_order(workers)


async def test_a_worker_that_is_told_while_its_database_is_away_leaves_in_time_and_costs_no_attempt(
    fleet: Fleet, store: Store
) -> None:
    """It can store nothing, not even that it gives its jobs up: whoever finds them later books a crash, no attempt.

    Nobody could tell it from a worker that its jobs took down: the store has heard of neither.
    """
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        lasting = {"OUTLAST_LEASE_SECONDS": "8", "OUTLAST_HEARTBEAT_SECONDS": "2"}
        worker = await fleet.worker(OUTLAST_DATABASE_URL=proxy.url, **lasting).ready()
        jobs = [await store.enqueue(name, {"gate": "never", "epochs": 1}, max_attempts=1) for name in BODIES[:2]]
        await eventually(lambda: len(fleet.ledger.events("effect")) == len(jobs), "both run")
        proxy.cut()
        worker.terminate()
        await eventually(lambda: len(fleet.ledger.events("told")) == len(jobs), "both bodies are told all the same")
        assert await worker.gone(DRAIN + WATCHDOG + 1) == ABANDONED
    await fleet.worker().ready()
    await _a_crash_and_no_attempt(store, jobs)


@pytest.mark.long
async def test_a_worker_is_asked_itself_while_the_server_is_down(own_postgres: DevPostgres, folder: Path) -> None:
    """The way that the refusal names works, and one that is back only after the worker's end makes no difference."""
    url = own_postgres.dsn()
    await migrate(url)
    with fleet_on(url, folder) as fleet:
        api = await fleet.api().ready()
        worker = await fleet.worker(**LONG_LEASE).ready()
        async with store_on(url) as store:
            await store.publish()
            jobs = [await store.enqueue(name, {"gate": "never", "epochs": 1}, max_attempts=1) for name in BODIES[:2]]
            await eventually(lambda: len(fleet.ledger.events("effect")) == len(jobs), "both run")
            (own,) = await store.driver.workers()
            await asyncio.to_thread(own_postgres.stop, "immediate")
            async with client_of(api) as client, httpx.AsyncClient(base_url=worker.admin) as admin:
                refused = await client.post(f"/v1/workers/{own.id}/drain")
                assert (refused.status_code, refused.json()["code"]) == (503, "DRIVER_UNAVAILABLE")
                assert "POST /v1/drain on its own admin port" in refused.json()["fix"]
                assert (await admin.post("/v1/drain")).status_code == 202
            await eventually(lambda: len(fleet.ledger.events("told")) == len(jobs), "both bodies are told")
            assert await worker.gone(DRAIN + WATCHDOG + 1) == ABANDONED
            await asyncio.to_thread(own_postgres.start)
            await store.fetch(_LAPSE, own.id)
            await fleet.worker().ready()
            await _a_crash_and_no_attempt(store, jobs)


async def test_a_database_that_is_back_before_the_drain_ends_has_cost_nothing(fleet: Fleet, store: Store) -> None:
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        patient = {**LONG_LEASE, "OUTLAST_DRAIN_SECONDS": "25"}
        worker = await fleet.worker(OUTLAST_DATABASE_URL=proxy.url, **patient).ready()
        jobs = [await store.enqueue(name, {"gate": "never", "epochs": 1}, max_attempts=1) for name in BODIES[:2]]
        await eventually(lambda: len(fleet.ledger.events("effect")) == len(jobs), "both run")
        proxy.cut()
        worker.terminate()
        await eventually(lambda: worker.said("settle.failed") != [], "what they end with cannot be stored")
        proxy.heal()
        assert await worker.gone() == 0
    for view in await store.all_until(jobs, State.READY):
        (attempt,) = await store.attempts(view.id)
        assert (attempt.outcome, attempt.counted) == (OutcomeKind.INTERRUPTED, False)
        assert (view.counters.attempt, view.counters.crashes, view.counters.interrupts) == (0, 0, 1)


async def _a_crash_and_no_attempt(store: Store, jobs: Sequence[JobId]) -> None:
    for view in await store.all_until(jobs):
        attempts = await store.attempts(view.id)
        assert (view.state, view.counters.attempt, view.counters.crashes) == (State.DONE, 1, 1), attempts
        assert [(a.outcome, a.counted) for a in attempts] == [
            (OutcomeKind.CRASHED, False),
            (OutcomeKind.COMPLETED, attempts[-1].counted),
        ]


async def _running(fleet: Fleet, store: Store, workers: Sequence[Service]) -> list[JobId]:
    """Start jobs on both workers: some end during the outage, some after it."""
    for worker in workers:
        await worker.ready()
    jobs = [await store.enqueue(name, {"gate": "during"}) for name in BODIES]
    jobs += [await store.enqueue(name, {"gate": "after"}) for name in BODIES]
    jobs.append(await store.enqueue("faults.hold", {"gate": "after"}, max_attempts=1))
    mine = {str(job_id) for job_id in jobs}

    def begun() -> int:
        return sum(event.job in mine for event in fleet.ledger.events("effect"))

    await eventually(lambda: begun() == len(jobs), "all run")
    return jobs


async def _two_leases_pass(fleet: Fleet) -> None:
    since = fleet.ledger.record("outage")
    fleet.ledger.open("during")
    await eventually(lambda: fleet.ledger.record("wait") - since > 2 * LEASE, "two leases pass")
    fleet.ledger.open("after")


async def _all_leave_in_order(workers: Sequence[Service]) -> None:
    for worker in workers:
        assert worker.code is None, "an outage ends no worker"
        worker.terminate()
    for worker in workers:
        assert await worker.gone() == 0
