"""`Prefer: return=minimal`: every answer to a change may be had without its body, but for what is shown once."""

from __future__ import annotations

import pytest

from tests.http.api import Api
from tests.http.test_openapi import OPERATIONS
from tests.support.drivers import NAME

MINIMAL = {"Prefer": "return=minimal"}
JOB = {"name": NAME, "payload": {}}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/jobs", JOB, 201),
        ("POST", "/v1/job-batches", {"jobs": [JOB]}, 200),
        ("POST", "/v1/jobs/{id}/cancel", None, 200),
        ("PATCH", "/v1/jobs/{id}", {"priority": 1}, 200),
        ("POST", "/v1/jobs/{id}/duplicate", {}, 201),
        ("POST", "/v1/queues/mail/pause", None, 200),
        ("PATCH", "/v1/queues/mail", {"concurrency": 4}, 200),
        ("POST", "/v1/events", {"name": "a", "key": "k"}, 202),
        ("POST", "/v1/bulk-operations", {"action": "cancel", "selector": {"filter": {}}}, 202),
    ],
)
async def test_an_answer_without_a_body_keeps_its_headers(
    api: Api, method: str, path: str, body: object, status: int
) -> None:
    job = await api.post()
    where = path.replace("{id}", job["id"])
    headers = {"If-Match": "*"}
    bare = await api.client.request(method, where, json=body, headers=headers | MINIMAL)
    assert (bare.status_code, bare.content) == (status, b"")
    assert bare.headers["preference-applied"] == "return=minimal"
    assert "content-type" not in bare.headers
    full = await api.client.request(method, where, json=body, headers=headers)
    assert full.json()
    about = {"etag", "location"}
    assert about & set(bare.headers) == about & set(full.headers)


async def test_a_wait_and_no_body_are_both_said(api: Api) -> None:
    answer = await api.client.post("/v1/jobs", json=JOB, headers={"Prefer": "wait=0, return=minimal"})
    assert (answer.status_code, answer.content) == (202, b"")
    assert answer.headers["preference-applied"] == "wait=0, return=minimal"


async def test_a_repeated_request_says_anew_what_it_prefers(each_api: Api) -> None:
    key = {"Idempotency-Key": '"k"'}
    bare = await each_api.client.post("/v1/jobs", json=JOB, headers=key | MINIMAL)
    full = await each_api.client.post("/v1/jobs", json=JOB, headers=key)
    again = await each_api.client.post("/v1/jobs", json=JOB, headers=key | MINIMAL)
    assert (bare.content, again.content) == (b"", b"")
    assert again.headers["idempotency-replayed"] == "true"
    assert full.json()["links"]["self"] == bare.headers["location"] == again.headers["location"]
    assert "preference-applied" not in full.headers


async def test_a_secret_is_shown_whatever_is_preferred(api: Api) -> None:
    made = await api.client.post("/v1/api-keys", json={"label": "x", "scopes": ["admin"]}, headers=MINIMAL)
    assert made.json()["token"]
    assert "preference-applied" not in made.headers


async def test_problems_and_what_is_read_keep_their_bodies(api: Api) -> None:
    assert (await api.client.get("/v1/queues", headers=MINIMAL)).json() == {"items": []}
    assert (await api.client.post("/v1/jobs", json={}, headers=MINIMAL)).json()["code"] == "REQUEST_INVALID"


def test_it_is_written_down_where_it_holds() -> None:
    told = {
        name
        for name, operation in OPERATIONS.items()
        if any(
            each["name"] == "Prefer" and "minimal" in each["description"] for each in operation.get("parameters", ())
        )
    }
    assert {"enqueueJob", "cancelJob", "updateQueue", "purgeDeadLetters"} <= told
    assert not told & {"createApiKey", "rotateApiKey", "listJobs", "deleteJob", "getResult"}
