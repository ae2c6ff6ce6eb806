"""What a caller sees with curl: a real API and a real worker, over HTTP alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.support.ledger import Ledger
from tests.support.processes import Fleet, client_of, eventually

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

Document = dict[str, Any]


class Caller:
    """Somebody with a key and the address of the API."""

    def __init__(self, client: httpx.AsyncClient, ledger: Ledger) -> None:
        self.client = client
        self.ledger = ledger

    async def post(self, path: str, status: int, body: Document | None = None, **headers: str) -> Document:
        response = await self.client.post(path, json=body, headers=headers)
        assert response.status_code == status, response.text
        found: Document = response.json()
        return found

    async def get(self, path: str, status: int = 200) -> Document:
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        found: Document = response.json()
        return found

    async def enqueue(self, name: str, payload: Document | None = None, **fields: object) -> Document:
        return await self.post("/v1/jobs", 201, {"name": name, "payload": payload or {}, **fields})

    async def until(self, job: Document, state: str) -> Document:
        found: Document = {}

        async def arrived() -> bool:
            nonlocal found
            found = await self.get(f"/v1/jobs/{job['id']}")
            return bool(found["state"] == state)

        await eventually(arrived, f"{job['name']} is {state}")
        return found

    async def attempts(self, job: Document) -> list[Document]:
        items: list[Document] = (await self.get(f"/v1/jobs/{job['id']}/attempts"))["items"]
        return items


@pytest.fixture
async def caller(fleet: Fleet) -> AsyncIterator[Caller]:
    api, worker = fleet.api(), fleet.worker()
    await worker.ready()  # publishes the job types
    await api.ready()
    async with client_of(api) as client:
        yield Caller(client, fleet.ledger)


async def test_the_whole_life_of_jobs_over_http(caller: Caller) -> None:
    await _done_with_a_result(caller)
    await _failing_then_dead_with_a_readable_error(caller)
    await _cancelled_before_and_while_running(caller)
    await _one_key_one_job(caller)
    await _a_retry_whose_key_is_taken(caller)


async def _done_with_a_result(caller: Caller) -> None:
    job = {"name": "faults.hold", "payload": {}}
    done = await caller.post("/v1/jobs", 200, job, prefer="wait=20")
    assert (done["state"], done["attempt"], done["error"]) == ("done", 1, None)
    assert done["result"] == {"claim_no": 1, "attempt": 1}
    result = await caller.get(f"/v1/jobs/{done['id']}/result")
    assert result["result"] == done["result"]
    (attempt,) = await caller.attempts(done)
    assert (attempt["outcome"], attempt["number"]) == ("completed", 1)


async def _failing_then_dead_with_a_readable_error(caller: Caller) -> None:
    job = await caller.enqueue("faults.fail_slower", {"reason": "Größe 42 ≠ 43\nnext line"})
    dead = await caller.until(job, "dead")
    assert (dead["attempt"], dead["max_attempts"], dead["state_reason"]) == (3, 3, "attempts_exhausted")
    assert dead["error"]["type"] == "ValueError"
    assert dead["error"]["message"] == "Größe 42 ≠ 43\nnext line"
    attempts = await caller.attempts(job)
    assert [a["outcome"] for a in attempts] == ["retried", "retried", "dead_lettered"]
    assert all(a["counted"] and "fail_slower" in a["error"]["traceback"] for a in attempts)
    at = [(datetime.fromisoformat(a["started_at"]), datetime.fromisoformat(a["ended_at"])) for a in attempts]
    first, second = ((at[n + 1][0] - at[n][1]).total_seconds() for n in range(2))
    assert first >= 0.2
    assert second >= 0.8, "the second wait is four times the first"
    failed = await caller.get(f"/v1/jobs/{job['id']}/result", 409)
    assert (failed["code"], failed["error"]["message"]) == ("JOB_FAILED", "Größe 42 ≠ 43\nnext line")
    again = await caller.post(f"/v1/jobs/{job['id']}/retry", 200)
    assert (again["state"], again["attempt"]) in {("ready", 0), ("running", 1), ("delayed", 1)}
    assert len(await caller.attempts(await caller.until(job, "dead"))) == 6, "the ledger is kept"


async def _cancelled_before_and_while_running(caller: Caller) -> None:
    waiting = await caller.enqueue("faults.hold", delay_ms=3_600_000)
    before = await caller.post(f"/v1/jobs/{waiting['id']}/cancel", 200, {"reason": "not needed"})
    assert (before["verdict"], before["state"]) == ("cancelled_before_start", "cancelled")
    assert before["state_reason"] == "not needed"
    running = await caller.enqueue("faults.hold", {"gate": "never"})
    await caller.until(running, "running")
    during = await caller.post(f"/v1/jobs/{running['id']}/cancel", 200)
    assert (during["verdict"], during["state"]) == ("signalled", "cancelled")
    await eventually(lambda: caller.ledger.events("told", job=running["id"]) != [], "the body is told")
    again = await caller.post(f"/v1/jobs/{running['id']}/cancel", 200)
    assert (again["verdict"], again["state"]) == ("already_finished", "cancelled")
    (attempt,) = await caller.attempts(running)
    assert (attempt["outcome"], attempt["cause"], attempt["counted"]) == ("cancelled", "operator", False)
    assert (await caller.get(f"/v1/jobs/{running['id']}/result", 409))["code"] == "JOB_FAILED"


async def _one_key_one_job(caller: Caller) -> None:
    asked = {"name": "faults.hold", "payload": {"gate": "key"}, "idempotency_key": "order:7"}
    first = await caller.post("/v1/jobs", 201, asked)
    second = await caller.post("/v1/jobs", 200, asked)
    assert (first["deduped"], second["deduped"]) == (False, True)
    assert first["id"] == second["id"]
    other = await caller.post("/v1/jobs", 409, asked | {"payload": {"gate": "another"}})
    assert (other["code"], other["existing_id"]) == ("IDEMPOTENCY_MISMATCH", first["id"])
    strict = await caller.post("/v1/jobs", 409, asked | {"on_conflict": "error"})
    assert (strict["code"], strict["existing_id"]) == ("JOB_DUPLICATE", first["id"])
    caller.ledger.open("key")
    await caller.until(first, "done")
    assert (await caller.post("/v1/jobs", 201, asked))["id"] != first["id"], "the key is free once the job has ended"


async def _a_retry_whose_key_is_taken(caller: Caller) -> None:
    asked: Document = {"payload": {"terminal": True}, "idempotency_key": "order:8"}
    dead = await caller.until(await caller.enqueue("faults.fail", **asked), "dead")
    assert dead["state_reason"] == "terminal"
    holder = await caller.enqueue("faults.fail", **asked, delay_ms=3_600_000)
    taken = await caller.post(f"/v1/jobs/{dead['id']}/retry", 409)
    assert (taken["code"], taken["existing_id"]) == ("JOB_DUPLICATE", holder["id"])
    refused = await caller.post(f"/v1/jobs/{holder['id']}/retry", 409)
    assert refused["code"] == "JOB_STATE_CONFLICT"
    await caller.post(f"/v1/jobs/{holder['id']}/cancel", 200)
    await caller.post(f"/v1/jobs/{dead['id']}/retry", 200)


async def test_one_process_can_be_both_and_leaves_with_a_request_waiting(fleet: Fleet) -> None:
    both = await fleet.run().ready()
    async with client_of(both) as client:
        waiting = client.post(
            "/v1/jobs", json={"name": "faults.hold", "payload": {"gate": "never"}}, headers={"prefer": "wait=60"}
        )
        call = asyncio.create_task(waiting)
        await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
        both.terminate()
        response = await call
        assert response.status_code == 202
        assert await both.gone() == 0
