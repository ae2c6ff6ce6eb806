"""`POST /v1/job-batches`, over each driver."""

from __future__ import annotations

from typing import Any

import pytest

from app.http.requests_batch import Batch
from tests.http.api import Api, code_of, job_type
from tests.support.drivers import NAME

PATH = "/v1/job-batches"


def a_job(**fields: Any) -> dict[str, Any]:
    """Give one job of a batch."""
    return {"name": NAME, "payload": {"n": 1.50}, **fields}


async def _count(api: Api) -> int:
    return len((await api.client.get("/v1/jobs", params={"limit": 200})).json()["items"])


async def test_a_batch_is_stored_in_order(each_api: Api) -> None:
    response = await each_api.client.post(PATH, json={"jobs": [a_job(priority=n) for n in range(3)]})
    assert response.status_code == 200, response.text
    Batch.model_validate(response.json())
    items = response.json()["items"]
    assert [(item["index"], item["status"]) for item in items] == [(0, 201), (1, 201), (2, 201)]
    jobs = [await each_api.get(item["job"]) for item in items]
    assert [job["priority"] for job in jobs] == [0, 1, 2]


async def test_payloads_are_kept_byte_for_byte(api: Api) -> None:
    text = f'{{"jobs":[{{"name":"{NAME}","payload":{{"n": 1.50, "a":-0.0}}}}]}}'
    response = await api.client.post(PATH, content=text, headers={"Content-Type": "application/json"})
    (item,) = response.json()["items"]
    assert '"payload":{"n": 1.50, "a":-0.0}' in (await api.client.get(item["job"]["links"]["self"])).text


@pytest.mark.parametrize(
    ("wrong", "status", "code", "pointer"),
    [
        ({"name": "nobody.knows"}, 404, "JOB_UNKNOWN", None),
        ({"priority": 10}, 422, "REQUEST_INVALID", "/jobs/1/priority"),
        ({"payload": {"n": "x"}, "name": "strict"}, 422, "PAYLOAD_INVALID", "/jobs/1/payload/n"),
        ({"max_attempts": 26}, 422, "REQUEST_INVALID", None),
    ],
)
async def test_one_refusal_refuses_a_batch_that_is_all_or_none(
    each_api: Api, wrong: dict[str, Any], status: int, code: str, pointer: str | None
) -> None:
    strict = job_type("strict", schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    await each_api.env.driver.publish_job_types([strict])
    response = await each_api.client.post(PATH, json={"jobs": [a_job(), a_job(**wrong), a_job()]})
    assert code_of(response) == (status, code)
    assert response.json()["index"] == 1
    if pointer is not None:
        assert response.json()["errors"][0]["pointer"] == pointer
    assert await _count(each_api) == 0


async def test_a_taken_key_refuses_the_batch_with_its_index(each_api: Api) -> None:
    holder = await each_api.post(idempotency_key="k")
    jobs = [a_job(payload={}), a_job(payload={}, idempotency_key="k", on_conflict="error")]
    response = await each_api.client.post(PATH, json={"jobs": jobs})
    assert code_of(response) == (409, "JOB_DUPLICATE")
    assert (response.json()["index"], response.json()["existing_id"]) == (1, holder["id"])
    assert await _count(each_api) == 1


async def test_each_for_itself_stores_what_fits(each_api: Api) -> None:
    holder = await each_api.post(idempotency_key="k")
    jobs: list[Any] = [
        a_job(),
        a_job(priority=10),
        a_job(payload={}, idempotency_key="k"),
        a_job(idempotency_key="k"),
        1,
    ]
    response = await each_api.client.post(PATH, json={"jobs": jobs, "atomic": False})
    assert response.status_code == 200, response.text
    Batch.model_validate(response.json())
    items = response.json()["items"]
    assert [item["status"] for item in items] == [201, 422, 200, 409, 422]
    assert items[2]["job"]["id"] == holder["id"]
    assert items[2]["job"]["deduped"] is True
    assert items[1]["problem"]["errors"][0]["pointer"] == "/jobs/1/priority"
    assert items[3]["problem"]["code"] == "IDEMPOTENCY_MISMATCH"
    assert items[4]["problem"]["errors"][0]["pointer"] == "/jobs/4"
    assert await _count(each_api) == 2


async def test_a_batch_with_a_key_is_stored_once(each_api: Api) -> None:
    key = {"Idempotency-Key": '"batch"'}
    first = await each_api.client.post(PATH, json={"jobs": [a_job(), a_job()]}, headers=key)
    again = await each_api.client.post(PATH, json={"jobs": [a_job(), a_job()]}, headers=key)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert await _count(each_api) == 2


async def test_a_key_is_refused_where_it_could_not_hold(api: Api) -> None:
    sent = {"jobs": [a_job()], "atomic": False}
    response = await api.client.post(PATH, json=sent, headers={"Idempotency-Key": '"batch"'})
    assert code_of(response) == (422, "REQUEST_INVALID")
    assert await _count(api) == 0


async def test_a_batch_has_bounds(api: Api) -> None:
    assert code_of(await api.client.post(PATH, json={"jobs": []})) == (422, "REQUEST_INVALID")
    assert code_of(await api.client.post(PATH, json={"jobs": [a_job()] * 1_001})) == (422, "REQUEST_INVALID")
    large = {"jobs": [a_job(payload="x" * 200_000)] * 30}
    assert code_of(await api.client.post(PATH, json=large)) == (413, "PAYLOAD_TOO_LARGE")
    fitting = {"jobs": [a_job(payload="x" * 200_000)] * 20}
    assert (await api.client.post(PATH, json=fitting)).status_code == 200
    wide = {"jobs": [a_job(payload="x" * 270_000)]}
    assert code_of(await api.client.post(PATH, json=wide)) == (413, "PAYLOAD_TOO_LARGE")


async def test_a_thousand_jobs_fit(each_api: Api) -> None:
    response = await each_api.client.post(PATH, json={"jobs": [a_job() for _ in range(1_000)]})
    assert len({item["job"]["id"] for item in response.json()["items"]}) == 1_000
