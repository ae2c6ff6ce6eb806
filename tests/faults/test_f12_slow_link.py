"""F12: a slow, uneven, narrow and unreliable way to the database costs round trips and nothing else.

What a machine under load makes of a delay decides nothing here: statements are counted, the store says which leases
held, and every start of a body is explained.
"""

from __future__ import annotations

import random

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.state import State
from tests.faults.history import check
from tests.faults.statements import SETTLING, TAKING
from tests.support.processes import Fleet, Service, eventually, report
from tests.support.proxy import proxy_to
from tests.support.store import Store, store_on
from tests.support.weather import Weather

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(300)]

# Wake-ups bring the work; polls would only add to what is counted.
_BY_WAKE_UP = {"OUTLAST_POLL_SECONDS": "600"}
_SLOW = 1.0


def _lease(heartbeat: float) -> dict[str, str]:
    return {
        "OUTLAST_HEARTBEAT_SECONDS": str(heartbeat),
        "OUTLAST_LEASE_SECONDS": str(heartbeat * 10 / 3),
        "OUTLAST_DRAIN_SECONDS": "10",
    }


@pytest.mark.parametrize(
    "round_trip",
    [
        pytest.param(0.05, id="50ms", marks=pytest.mark.soak),
        pytest.param(0.25, id="250ms"),
        pytest.param(_SLOW, id="1000ms", marks=pytest.mark.soak),
    ],
)
async def test_a_job_costs_one_claim_and_one_settle_however_long_the_way_and_the_lease_holds(
    fleet: Fleet, store: Store, seed: int, round_trip: float
) -> None:
    """Round trips stay below half a heartbeat, jitter included: then no renewal may be missed."""
    heartbeat = max(1.0, round_trip * 2.5)
    count = 4 if round_trip < _SLOW else 10
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        worker = fleet.worker(OUTLAST_DATABASE_URL=proxy.url, **_BY_WAKE_UP, **_lease(heartbeat))
        await worker.ready()
        await _warm(store)
        proxy.weather = Weather(seed=seed, round_trip_seconds=round_trip, jitter=0.2)
        claims, settles = proxy.count(TAKING), proxy.count(SETTLING)
        jobs = []
        for _ in range(count):
            jobs.append(await store.enqueue("faults.hold"))
            took = await eventually(lambda: _is(store, jobs[-1], State.DONE), "it is done", 60)
            report(f"done after {took / round_trip:.1f} round trips")
        assert settles.count == count, "each outcome was sent once"
        assert count <= claims.count <= 2 * count, "one look brings the job, at most one more finds nothing"
        await _kept_its_lease(worker, store)
        proxy.weather = None
    assert set(await _claims_of(store)) == {1}, "nothing ran twice"
    await check(store, fleet.ledger.events(), acked=jobs)


@pytest.mark.parametrize(
    ("count", "resets"),
    [pytest.param(40, 0.1, id="many"), pytest.param(600, 0.01, id="one-in-a-hundred", marks=pytest.mark.soak)],
)
@pytest.mark.long
async def test_cut_connections_lose_no_job_and_explain_every_start(
    fleet: Fleet, store: Store, seed: int, dice: random.Random, count: int, resets: float
) -> None:
    """Producer and worker both sit behind the bad line; an enqueue that did not come back, the producer repeats."""
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        lease = {"OUTLAST_LEASE_SECONDS": "10", "OUTLAST_HEARTBEAT_SECONDS": "0.6", "OUTLAST_DRAIN_SECONDS": "10"}
        worker = await fleet.worker(OUTLAST_DATABASE_URL=proxy.url, **lease).ready()
        await _warm(store)
        acked: list[JobId] = []
        async with store_on(proxy.url) as producer:
            proxy.weather = Weather(seed=seed, round_trip_seconds=0.02, jitter=0.5, resets=resets)
            while len(acked) < count:
                try:
                    acked.append(await producer.enqueue("faults.hold"))
                except DriverUnavailable:
                    report("an enqueue did not come back")
                if dice.random() < 0.1:
                    await eventually(lambda: _is(store, acked[-1], State.DONE), "one of them is done", 60)
            await eventually(lambda: _are_all_done(store, count), "all are done", 120)
            report(f"{proxy.weather.cuts} connections were cut")
            assert proxy.weather.cuts > 0
            proxy.weather = None
        await _kept_its_lease(worker, store)
    await check(store, fleet.ledger.events(), acked=acked)


@pytest.mark.soak
async def test_a_narrow_line_delays_large_payloads_and_no_heartbeat(fleet: Fleet, store: Store, seed: int) -> None:
    """64 KB a second: a claim of ten such jobs alone takes longer than a lease."""
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        worker = await fleet.worker(OUTLAST_DATABASE_URL=proxy.url, **_BY_WAKE_UP).ready()
        await _warm(store)
        proxy.weather = Weather(seed=seed, round_trip_seconds=0.05, jitter=0.2, bytes_per_second=64 * 1024)
        jobs = [await store.enqueue("faults.hold", {"gate": "g" * 20_000, "epochs": 0}) for _ in range(40)]
        await store.all_until(jobs, State.DONE, within=120)
        await _kept_its_lease(worker, store)
        proxy.weather = None
    await check(store, fleet.ledger.events(), acked=jobs)


async def _warm(store: Store) -> None:
    """Let every statement be known to the worker's connections: what follows are round trips of one each."""
    for _ in range(3):
        await store.until(await store.enqueue("faults.hold"), State.DONE)


async def _is(store: Store, job_id: JobId, state: State) -> bool:
    return await store.state(job_id) is state


async def _are_all_done(store: Store, count: int) -> bool:
    """Say whether at least `count` jobs are, and nothing is under way; more, when an enqueue's answer was lost."""
    rows = await store.fetch(
        "select (select count(*) from outlast.finished) as done, (select count(*) from outlast.job) as known"
    )
    return bool(rows[0]["done"] == rows[0]["known"] >= count)


async def _kept_its_lease(worker: Service, store: Store) -> None:
    """Hold the store's record: renewed since now, one registration of this process, never lost."""

    async def is_renewed() -> bool:
        return bool(await store.fetch("select from outlast.worker where pid = $1 and renewed_at > $2", worker.pid, now))

    now = await store.driver.database_time()
    await eventually(is_renewed, "a renewal lands")
    report(f"{len(worker.said('heartbeat.failed'))} renewals had no answer in a third of a lease")
    rows = await store.fetch("select lost_at, closed_at from outlast.worker where pid = $1", worker.pid)
    assert [(row["lost_at"], row["closed_at"]) for row in rows] == [(None, None)], "one lease, held throughout"
    assert worker.said("worker.lease_over") == []


async def _claims_of(store: Store) -> list[int]:
    return [row["claim_no"] for row in await store.fetch("select claim_no from outlast.finished")]
