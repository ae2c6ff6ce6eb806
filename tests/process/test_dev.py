"""`outlast dev` as a new user meets it: one command, everything there, nothing left behind."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.devdb import DevPostgres
from tests.support.postgres import scratch
from tests.support.processes import DRAIN, JOBS, Fleet, Service, eventually, fleet_on, report

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(180)]

ANSWERS_SECONDS = 60.0  # from nothing
AGAIN_SECONDS = 15.0
DRAIN_SECONDS = 25.0

DEMO = {
    *("demo.checkout", "demo.count_lines", "demo.flaky", "demo.failing", "demo.long", "demo.parcel", "demo.primes"),
}


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="outlast-dev-", dir=scratch()) as path:
        Path(path).chmod(0o711)
        yield Path(path)


@pytest.fixture
async def dev(place: Path) -> AsyncIterator[Fleet]:
    with fleet_on("", place) as fleet:
        yield fleet
    # Whatever happened: no server stays.
    left = DevPostgres(place / "data" / "pg")
    left.stop("immediate")
    left.cluster.remove()


def start(fleet: Fleet, place: Path, *, jobs: str = "", drain_seconds: float = DRAIN_SECONDS) -> Service:
    """Start `outlast dev` with nothing but free ports and a data folder, as a person would."""
    return fleet.start(
        "dev", "--port", "0", "--admin-port", "0", "--data-dir", str(place / "data"),
        OUTLAST_DATABASE_URL="", OUTLAST_JOBS=jobs, OUTLAST_API_KEY_FILE="", OUTLAST_DRAIN_SECONDS=str(drain_seconds),
    )  # fmt: skip


@asynccontextmanager
async def answering(service: Service, within: float) -> AsyncIterator[httpx.AsyncClient]:
    """Wait until it says it is ready, and give a client of the address it names."""
    took = await eventually(
        lambda: service.code is not None or "outlast is ready after" in service.text, "dev is ready", within * 10
    )
    assert service.code is None, service.text
    report(f"ready after {took:.1f} s; promised {within:g} s")
    match = re.search(r"curl -sS (http://\S+?)/v1/jobs ", service.text)
    assert match is not None, service.text
    async with httpx.AsyncClient(base_url=match.group(1), timeout=60) as client:
        assert (await client.get("/readyz")).status_code == 200
        yield client


async def test_dev_runs_every_demo_job_and_leaves_nothing_behind(dev: Fleet, place: Path) -> None:
    service = start(dev, place)
    async with answering(service, ANSWERS_SECONDS) as client:
        types = (await client.get("/v1/job-types")).json()["items"]
        assert {one["name"] for one in types} == {*DEMO, "outlast.webhooks.deliver"}
        jobs = {}
        for name in sorted(DEMO):
            response = await client.post("/v1/jobs", json={"name": name, "payload": {}})
            assert response.status_code == 201, response.text
            jobs[name] = response.json()["id"]
        await _ends(client, jobs["demo.count_lines"], "done")
        await _ends(client, jobs["demo.primes"], "done")
        await _ends(client, jobs["demo.flaky"], "done")
        assert (await _ends(client, jobs["demo.failing"], "dead"))["error"]["message"] == "this job always fails"
        await _ends(client, jobs["demo.long"], "running")
        cancelled = (await client.post(f"/v1/jobs/{jobs['demo.long']}/cancel")).json()
        assert (cancelled["verdict"], cancelled["state"]) == ("signalled", "cancelled")
        running = (await client.post("/v1/jobs", json={"name": "demo.long", "payload": {}})).json()["id"]
        await _ends(client, running, "running")
    sent = dev.ledger.record("term")
    service.terminate()
    assert await service.gone() == 0, service.text
    report(f"gone {dev.ledger.record('gone') - sent:.1f} s after SIGTERM; the budget is {DRAIN_SECONDS:g} s")
    assert _group(service.pid) == [], "processes are left"
    assert DevPostgres(place / "data" / "pg").pid is None
    assert "Traceback" not in service.text


async def test_a_killed_dev_is_followed_by_one_that_takes_its_database_over(dev: Fleet, place: Path) -> None:
    first = start(dev, place)
    async with answering(first, ANSWERS_SECONDS) as client:
        job = (await client.post("/v1/jobs", json={"name": "demo.primes", "payload": {}})).json()["id"]
        await _ends(client, job, "done")
    server = DevPostgres(place / "data" / "pg").pid
    assert server is not None
    first.kill()
    assert DevPostgres(place / "data" / "pg").pid == server, "the server outlived its starter"
    second = start(dev, place)
    async with answering(second, AGAIN_SECONDS) as client:
        assert DevPostgres(place / "data" / "pg").pid == server
        assert "taken over" in second.text
        assert (await client.get(f"/v1/jobs/{job}")).json()["state"] == "done"
        again = (await client.post("/v1/jobs", json={"name": "demo.primes", "payload": {"below": 100}})).json()["id"]
        assert (await _ends(client, again, "done"))["result"]["count"] == 25
    second.terminate()
    assert await second.gone() == 0
    assert _group(first.pid) == []
    assert _group(second.pid) == []
    assert DevPostgres(place / "data" / "pg").pid is None


@pytest.mark.long
async def test_a_dev_that_has_to_give_work_up_still_stops_its_database(dev: Fleet, place: Path) -> None:
    service = start(dev, place, jobs=f"{JOBS},tests.support.jobs_engines", drain_seconds=DRAIN)
    async with answering(service, ANSWERS_SECONDS) as client:
        count = (await client.post("/v1/jobs", json={"name": "process.engines", "payload": {}})).json()["id"]
        assert (await _ends(client, count, "done"))["result"] == 1, "one engine for all its roles"
        body = {"name": "faults.deaf", "payload": {"gate": "never"}}
        job = (await client.post("/v1/jobs", json=body)).json()["id"]
        await _ends(client, job, "running")
    service.terminate()
    assert await service.gone() == 70, service.text
    assert service.said("worker.drain_abandoned", job_id=job) != []
    assert _group(service.pid) == [], "processes are left"
    assert DevPostgres(place / "data" / "pg").pid is None


async def _ends(client: httpx.AsyncClient, job_id: str, state: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def arrived() -> bool:
        nonlocal found
        found = (await client.get(f"/v1/jobs/{job_id}")).json()
        return bool(found["state"] == state)

    await eventually(arrived, f"{job_id} is {state}", 60)
    return found


def _group(leader: int) -> list[int]:
    """Give the processes still in a process group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(state[2]) == leader and state[0] != "Z":
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    assert os.getpid() not in found
    return found
