"""Streams of a real process: they end when it is told to leave, and lead on to another one."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.support.processes import DRAIN, Fleet, Service, client_of, eventually, report
from tests.support.sse import stream_of
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(60)]

PROMISED_SECONDS = 1.0
BY_SIGTERM = -15  # 143 as a shell reports it


async def enqueued(client: httpx.AsyncClient, gate: str) -> str:
    response = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {"gate": gate, "heed": False}})
    assert response.status_code == 201, response.text
    return f"/v1/jobs/{response.json()['id']}/events"


async def ends_at_once(service: Service, client: httpx.AsyncClient, path: str) -> str:
    """Open streams, tell the process to leave, and give the last id of one that ended within a second."""
    async with stream_of(client, path) as first, stream_of(client, path) as second:
        (told,) = await first.until("state")
        await second.until("state")
        began = time.monotonic()
        service.terminate()
        async with asyncio.timeout(PROMISED_SECONDS * 10):
            lasts = [(await reader.rest())[-1] for reader in (first, second)]
        took = time.monotonic() - began
        report(f"ended {took:.2f} s after SIGTERM; promised {PROMISED_SECONDS:g} s")
    assert [last.event for last in lasts] == ["draining", "draining"]
    assert told.id is not None
    return told.id


async def test_streams_end_at_sigterm_and_lead_on_to_another_process(fleet: Fleet, store: Store) -> None:
    leaving, staying = await fleet.api().ready(), await fleet.api().ready()
    async with client_of(leaving) as client:
        path = await enqueued(client, "end")
        last_id = await ends_at_once(leaving, client, path)
    assert await leaving.gone(DRAIN + 2) == 0
    worker = await fleet.worker().ready()
    async with client_of(staying) as client, stream_of(client, path, last_id=last_id) as reader:
        await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
        fleet.ledger.open("end")
        sent = await reader.rest()
        assert [one.event for one in sent][-3:] == ["attempt", "state", "end"]
        assert sent[-1].data["state"] == "done"
        assert all(int(one.id or 0) > int(last_id) for one in sent)
    worker.terminate()
    staying.terminate()
    assert [await worker.gone(), await staying.gone()] == [0, 0]


async def test_plain_uvicorn_leaves_with_a_stream_open(fleet: Fleet, store: Store) -> None:
    server = fleet.start("app.main:app", "--port", "0", module="uvicorn")
    await eventually(lambda: "Uvicorn running on http" in server.text or server.code is not None, "it listens")
    async with client_of(server) as client:
        await ends_at_once(server, client, await enqueued(client, "end"))
    assert await server.gone(DRAIN + 2) == BY_SIGTERM
