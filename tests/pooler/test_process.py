"""A whole service behind a pooler: it starts, says what is in its way, and a caller sees the same as without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.conftest import folder
from tests.support import pooler
from tests.support.processes import client_of, eventually, fleet_on

__all__ = ["folder"]

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]


@pytest.mark.parametrize("way", ["alone", "past it"])
async def test_a_service_says_at_its_start_what_the_pooler_costs_and_runs_jobs(
    pooled_url: str, database_url: str, folder: Path, way: str
) -> None:
    past = {"OUTLAST_LISTEN_URL": database_url} if way == "past it" else {}
    wakeup = "listen" if past else "polling"
    with fleet_on(pooled_url, folder) as fleet:
        service = await fleet.run(**past).ready()
        (said,) = service.said("store.pooled")
        assert said["wakeup"] == wakeup
        assert said["prepared_statements"] == ("on" if pooler.version() >= pooler.KEEPS_STATEMENTS else "off")
        assert "jit" in said["missing"]
        assert ("OUTLAST_LISTEN_URL" in said["fix"]) is (not past)
        async with client_of(service) as client:
            made = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}})
            assert made.status_code == 201, made.text

            async def is_done() -> bool:
                return bool((await client.get(f"/v1/jobs/{made.json()['id']}")).json()["state"] == "done")

            await eventually(is_done, "the job is done")

            async def shows() -> bool:
                items = (await client.get("/v1/workers")).json()["items"]
                return [item["wakeup"] for item in items] == [wakeup]

            await eventually(shows, f"the worker shows {wakeup}")
        service.terminate()
        assert await service.gone() == 0
