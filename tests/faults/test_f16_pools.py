"""F16: bodies hold every connection they can have; the worker renews and settles, and an API answers in time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import asyncpg
import httpx
import pytest

from app.domain.state import State
from app.drivers.postgres.connect import CONNECT_TIMEOUT, dsn_of
from tests.faults.history import check
from tests.support.jobs_pools import HELD, OVER
from tests.support.processes import HEARTBEAT, JOBS, LEASE, SLACK, Fleet, Service, client_of, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(150)]

AFTER = 3 * LEASE
# The bound is a timer of the product's own; behind it comes what a busy machine takes to answer thirty at once.
LATE = 3.0
MODULES = f"{JOBS},tests.support.jobs_pools"


async def _while_held(fleet: Fleet, store: Store, service: Service) -> list[float]:
    """Let three leases pass, in which other jobs of the worker run to their end; gives how long each took."""
    began, took = time.monotonic(), []
    while time.monotonic() - began < AFTER:
        at = time.monotonic()
        job_id = await store.enqueue("pools.none")
        await store.until(job_id, State.DONE, within=LEASE + SLACK)
        took.append(time.monotonic() - at)
        async with client_of(service) as client:
            answer = await client.get("/v1/jobs?limit=1")
        assert answer.status_code == httpx.codes.OK, answer.text
        await asyncio.sleep(HEARTBEAT)
    return took


@pytest.mark.parametrize(
    ("name", "held"), [("pools.own", HELD), pytest.param("pools.step", None, marks=pytest.mark.long)]
)
async def test_a_worker_lives_while_bodies_hold_every_connection_they_can_have(
    fleet: Fleet, store: Store, name: str, held: int | None
) -> None:
    pool = 8
    sizes = {"OUTLAST_CONCURRENCY": str(HELD + 10), "OUTLAST_POOL_SIZE": str(pool)}
    service = await fleet.run(OUTLAST_JOBS=MODULES, **sizes).ready()
    store.registry = store.registry.from_modules(MODULES.split(","))
    jobs = [await store.enqueue(name) for _ in range(HELD)]
    ledger = fleet.ledger
    await eventually(lambda: sum(e.type == "invoke" for e in ledger.events("effect")) == HELD, "all bodies began", 60)
    least = held or 1
    await eventually(lambda: len(ledger.events("held")) >= least, f"{least} connections are held", 60)
    took = await _while_held(fleet, store, service)
    holding = len(ledger.events("held"))
    assert holding == held if held else 0 < holding < pool
    ledger.open(OVER)
    await store.all_until(jobs, State.DONE, within=60)
    report(f"{holding} connections held for {AFTER:g} s; others took up to {max(took):.2f} s, {len(took)} of them")
    views = [await store.view(job_id) for job_id in jobs]
    assert Counter((view.counters.claim_no, view.counters.attempt) for view in views) == {(1, 1): HELD}
    for event in ("heartbeat.failed", "lease.lost", "settle.failed", "attempt.abandoned"):
        assert service.said(event) == [], event
    await check(store, ledger.events(), acked=jobs)


async def test_an_api_without_a_connection_to_spare_says_so_in_time(fleet: Fleet, store: Store) -> None:
    await store.publish()
    api = await fleet.api(OUTLAST_POOL_SIZE="2").ready()
    blocker = await asyncpg.connect(dsn_of(fleet.url))
    answers: list[tuple[int, float, str | None]] = []

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        began = time.monotonic()
        if number % 2:
            answer = await client.get("/v1/jobs")
        else:
            answer = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}})
        answers.append((answer.status_code, time.monotonic() - began, answer.headers.get("retry-after")))

    try:
        blocking = blocker.transaction()
        await blocking.start()
        await blocker.execute("lock table outlast.job in access exclusive mode")
        async with client_of(api, limits=httpx.Limits(max_connections=50)) as client:
            await asyncio.gather(*(ask(client, number) for number in range(30)))
            await blocking.rollback()
            assert (await client.get("/v1/jobs")).status_code == httpx.codes.OK
    finally:
        await blocker.close()
    report(f"{Counter(status for status, *_ in answers)}, after up to {max(took for _, took, _ in answers):.2f} s")
    assert {status for status, *_ in answers} == {httpx.codes.SERVICE_UNAVAILABLE}
    assert all(0 < int(retry_after or 0) <= CONNECT_TIMEOUT.total_seconds() for *_, retry_after in answers)
    assert max(took for _, took, _ in answers) <= CONNECT_TIMEOUT.total_seconds() + LATE
