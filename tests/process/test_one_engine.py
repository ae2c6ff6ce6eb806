"""A process has one database engine whatever its roles, and its connections are the ones the docs add up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.support.made import new_job
from tests.support.processes import Fleet, client_of, eventually
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

_POOL = 6
_JOBS = {"OUTLAST_JOBS": "tests.support.jobs_engines", "OUTLAST_POOL_SIZE": str(_POOL)}
# One that notifies is the test's own.
_MOST = {
    "worker": {"outlast": _POOL, "outlast notify": 2, "outlast listen": 1, "outlast heartbeat": 1},
    "run": {"outlast": _POOL, "outlast notify": 2, "outlast listen": 2, "outlast heartbeat": 1},
}


@pytest.mark.parametrize("role", ["worker", "run"])
async def test_a_process_has_one_engine_and_no_more_connections_than_it_says(
    fleet: Fleet, store: Store, role: str
) -> None:
    service = await (fleet.worker(**_JOBS) if role == "worker" else fleet.run(**_JOBS)).ready()
    seen: Counter[str] = Counter()
    if role == "run":
        async with client_of(service) as client:
            body = {"name": "process.engines", "payload": {}}
            answers = await asyncio.gather(*(client.post("/v1/jobs", json=body) for _ in range(3)))
            assert {answer.status_code for answer in answers} == {201}
    for _ in range(3):
        await store.driver.enqueue(new_job("process.engines"))
    await eventually(lambda: _are_done(store, seen), "all have run")
    results = await store.fetch("select distinct result from outlast.finished")
    assert [row["result"] for row in results] == ["1"], "one engine"
    assert seen.keys() <= _MOST[role].keys()
    assert {name: count for name, count in seen.items() if count > _MOST[role][name]} == {}
    assert {"outlast notify", "outlast listen", "outlast heartbeat"} <= seen.keys()


async def _are_done(store: Store, seen: Counter[str]) -> bool:
    rows = await store.fetch(
        "select application_name as name, count(*) as n from pg_stat_activity"
        " where datname = current_database() and application_name like 'outlast%' group by application_name"
    )
    for row in rows:
        seen[row["name"]] = max(seen[row["name"]], row["n"])
    left = await store.fetch(
        "select exists (select from outlast.ready) or exists (select from outlast.running) as left"
    )
    return not left[0]["left"]
