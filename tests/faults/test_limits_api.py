"""An API that loads no module of jobs makes their limits from what workers have published, and a worker heeds them."""

from __future__ import annotations

import httpx
import pytest

from app.domain.state import State
from tests.faults.history import check
from tests.support.processes import Fleet, client_of
from tests.support.store import Store, job_id_of

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

_LIMITS = "select limit_names, limit_keys from outlast.job where id = $1"


async def test_templates_of_limits_are_filled_in_where_no_module_is_loaded(fleet: Fleet, store: Store) -> None:
    await store.publish()
    api = await fleet.api(OUTLAST_JOBS="").ready()
    jobs = []
    async with client_of(api) as client:
        for key in ("a", "b", "a", "a"):
            answer = await client.post("/v1/jobs", json={"name": "limits.keyed", "payload": {"key": key}})
            assert answer.status_code == httpx.codes.CREATED, answer.text
            jobs.append(job_id_of(answer.json()["id"]))
        unknown = await client.post("/v1/jobs", json={"name": "limits.by_function", "payload": {"key": "a"}})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "JOB_UNKNOWN")
        assert "function" in unknown.json()["detail"] + unknown.json()["fix"]
    for job_id, key in zip(jobs, ("a", "b", "a", "a"), strict=True):
        (row,) = await store.fetch(_LIMITS, job_id)
        assert (row["limit_names"], row["limit_keys"]) == (["limit", "rate"], [key, ""])
    assert len(await store.fetch("select from outlast.gate")) == len(jobs)
    await fleet.worker().ready()
    await store.all_until(jobs, State.DONE)
    await check(store, fleet.ledger.events(), acked=jobs)
