"""A tenant with as many waiting jobs as it may have: who is refused, and who is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.control.crowd import TenantCrowd
from app.domain.api_key import Identity, Scope
from tests.http.api import KEY, Api, job_type
from tests.support.drivers import NAME, DriverEnv

MOST = 3


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def crowded(env: DriverEnv, time: Time) -> AsyncIterator[Api]:
    """A service that lets three jobs of a tenant wait."""
    made = Api(env, key=KEY)
    made.services.jobs._crowd = TenantCrowd(env.driver, MOST, monotonic=time)
    await env.driver.publish_job_types([job_type()])
    async with made.client:
        yield made


def as_tenant(api: Api, tenant: str) -> None:
    scopes = frozenset({Scope.JOBS_READ, Scope.JOBS_WRITE, Scope.OPERATE, Scope.PAYLOAD_READ})
    api.act_as(Identity(name=f"key of {tenant}", scopes=scopes, tenant=tenant))


async def send(api: Api, count: int = 1) -> list[httpx.Response]:
    return [await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}}) for _ in range(count)]


async def batch(api: Api, count: int, **fields: Any) -> httpx.Response:
    jobs = [{"name": NAME, "payload": {}}] * count
    return await api.client.post("/v1/job-batches", json={"jobs": jobs, **fields})


async def test_a_tenant_that_is_full_is_told_when_to_come_again_and_others_go_on(crowded: Api) -> None:
    as_tenant(crowded, "full")
    answers = await send(crowded, MOST + 1)
    assert [answer.status_code for answer in answers] == [201] * MOST + [429]
    refused = answers[-1].json()
    assert (refused["code"], refused["retryable"]) == ("TENANT_FULL", True)
    assert "3 jobs of tenant 'full' wait, of 3 that may" in refused["detail"]
    assert answers[-1].headers["retry-after"] == "1"
    duplicate = await crowded.client.post(f"/v1/jobs/{answers[0].json()['id']}/duplicate", json={})
    assert (duplicate.status_code, duplicate.json()["code"]) == (429, "TENANT_FULL")
    as_tenant(crowded, "free")
    assert [answer.status_code for answer in await send(crowded)] == [201]


async def test_what_was_cancelled_or_has_ended_makes_room_within_a_second(crowded: Api, time: Time) -> None:
    as_tenant(crowded, "full")
    jobs = [answer.json()["id"] for answer in await send(crowded, MOST)]
    cancelled = await crowded.client.post(f"/v1/jobs/{jobs[0]}/cancel", json={"reason": "no"})
    assert cancelled.status_code == 200
    held = await crowded.env.claim(await crowded.env.register(), room=1)
    assert len(held) == 1
    assert (await send(crowded))[0].status_code == 429
    time.now += 1
    assert [answer.status_code for answer in await send(crowded, 3)] == [201, 201, 429]


async def test_acting_on_jobs_is_never_refused(crowded: Api, time: Time) -> None:
    as_tenant(crowded, "full")
    jobs = [answer.json()["id"] for answer in await send(crowded, MOST)]
    await crowded.client.post(f"/v1/jobs/{jobs[0]}/cancel", json={"reason": "no"})
    time.now += 1
    assert (await send(crowded))[0].status_code == 201
    retried = await crowded.client.post(f"/v1/jobs/{jobs[0]}/retry", json={})
    assert retried.status_code == 200
    time.now += 1
    assert (await send(crowded))[0].status_code == 429


async def test_of_batches_each_job_counts(crowded: Api) -> None:
    as_tenant(crowded, "full")
    whole = await batch(crowded, MOST + 1)
    assert (whole.status_code, whole.json()["code"]) == (429, "TENANT_FULL")
    each = await batch(crowded, MOST + 1, atomic=False)
    assert sorted(item["status"] for item in each.json()["items"]) == [201] * MOST + [429]
    assert (await batch(crowded, 1)).status_code == 429


async def test_a_request_that_was_done_is_answered_again(crowded: Api) -> None:
    as_tenant(crowded, "full")
    headers = {"Idempotency-Key": "k-1"}
    body = {"name": NAME, "payload": {}}
    first = await crowded.client.post("/v1/jobs", json=body, headers=headers)
    await send(crowded, MOST - 1)
    again = await crowded.client.post("/v1/jobs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (first.status_code, first.json()["id"])
