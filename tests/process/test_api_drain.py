"""An API that leaves: in time whatever its clients do, answering until it closes, losing nothing acknowledged."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest

from app.domain.job import JobId
from app.domain.state import State
from tests.support.processes import DRAIN, Fleet, Service, client_of, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(60)]

STALLED = b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
BY_SIGTERM = -15  # 143 as a shell reports it
CLIENTS = 8


async def test_a_client_that_stalls_in_its_body_does_not_make_the_drain_unclean(fleet: Fleet) -> None:
    api = await fleet.api().ready()
    address = urlsplit(api.api)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as client:
        client.sendall(STALLED)
        client.setblocking(False)
        api.terminate()
        assert await api.gone(DRAIN + 2) == 0


async def test_requests_are_answered_until_the_drain_closes(fleet: Fleet, store: Store) -> None:
    """While the worker beside it waits for a body, new connections are taken, and jobs with them."""
    both = await fleet.run(OUTLAST_DRAIN_SECONDS="20").ready()
    await store.enqueue("faults.hold", {"gate": "done", "heed": False})
    await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
    both.terminate()
    await eventually(lambda: both.said("worker.drain_signalled") != [], "it drains")
    async with client_of(both) as client:
        shown = (await client.get("/v1/drain")).json()
        assert (shown["state"], shown["phase"], shown["role"]) == ("draining", "inflight", "worker+api")
        assert (await client.get("/readyz")).status_code == 503
        headers = {"prefer": "wait=20"}
        taken = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}}, headers=headers)
        assert taken.status_code == 202, "nobody waits for a job any more"
    fleet.ledger.open("done")
    assert await both.gone() == 0
    (left,) = await store.all_until([JobId(UUID(taken.json()["id"]))], State.READY)
    assert left.counters.claim_no == 0, "nothing is claimed after SIGTERM"


async def enqueue_until_gone(api: Service) -> tuple[list[JobId], list[int]]:
    """Enqueue over one kept connection until there is nobody; gives what was acknowledged, and other answers."""
    acknowledged, others = list[JobId](), list[int]()
    async with client_of(api) as client:
        while True:
            try:
                response = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}})
            except httpx.TransportError:
                return acknowledged, others
            if response.status_code == httpx.codes.CREATED:
                acknowledged.append(JobId(UUID(response.json()["id"])))
            else:
                others.append(response.status_code)


async def test_a_drain_under_load_loses_nothing_that_was_acknowledged(fleet: Fleet, store: Store) -> None:
    api = await fleet.api().ready()
    clients = [asyncio.create_task(enqueue_until_gone(api)) for _ in range(CLIENTS)]
    async with client_of(api) as client:

        async def has_jobs() -> bool:
            return len((await client.get("/v1/jobs?limit=200")).json()["items"]) > 5 * CLIENTS

        await eventually(has_jobs, "jobs arrive")
    api.terminate()
    assert await api.gone(DRAIN + 2) == 0
    answers = await asyncio.gather(*clients)
    acknowledged = [job_id for ids, _ in answers for job_id in ids]
    report(f"{len(acknowledged)} acknowledged")
    assert {status for _, others in answers for status in others} <= {503}
    assert len(set(acknowledged)) == len(acknowledged)
    await store.all_until(acknowledged, State.READY)


async def test_plain_uvicorn_leaves_with_a_request_waiting_and_says_143(fleet: Fleet, store: Store) -> None:
    server = fleet.start("app.main:app", "--port", "0", module="uvicorn")
    await eventually(lambda: "Uvicorn running on http" in server.text or server.code is not None, "it listens")
    async with client_of(server) as client:
        assert (await client.get("/v1/drain")).json()["state"] == "running"
        call = client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}}, headers={"prefer": "wait=50"})
        waiting = asyncio.create_task(call)

        async def is_there() -> bool:
            return len((await client.get("/v1/jobs")).json()["items"]) == 1

        await eventually(is_there, "the job is enqueued")
        server.terminate()
        assert (await waiting).status_code == 202
    assert await server.gone() == BY_SIGTERM


async def test_plain_uvicorn_leaves_when_asked_over_http(fleet: Fleet, store: Store) -> None:
    server = fleet.start("app.main:app", "--port", "0", module="uvicorn")
    await eventually(lambda: "Uvicorn running on http" in server.text or server.code is not None, "it listens")
    async with client_of(server) as client:
        asked = await client.post("/v1/drain")
        assert (asked.status_code, asked.json()["reason"]) == (202, "asked for by bootstrap")
    assert await server.gone() == BY_SIGTERM
