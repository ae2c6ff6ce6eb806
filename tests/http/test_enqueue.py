from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import Enqueued, NewJob
from app.domain.state import State
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import PurgeQuery
from app.http.answers import EnqueuedJob
from app.http.documents import JOB_ID
from tests.http.api import Api, code_of, job_type
from tests.support.drivers import NAME


async def test_a_new_job_is_answered_whole_with_its_address(each_api: Api) -> None:
    response = await each_api.client.post(
        "/v1/jobs", json={"name": NAME, "payload": {"a": 1}, "tags": ["x"], "meta": {"t": 1}, "priority": 2}
    )
    assert response.status_code == 201
    job = response.json()
    EnqueuedJob.model_validate(job)
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert response.headers["etag"] == f'"{job["version"]}"'
    assert (job["state"], job["deduped"], job["attempt"], job["claim_no"]) == ("ready", False, 0, 0)
    assert (job["payload"], job["tags"], job["meta"], job["priority"]) == ({"a": 1}, ["x"], {"t": 1}, 2)
    assert job["run_id"] == job["id"]
    assert job["enqueued_by"] == "dev"
    assert await each_api.get(job) | {"deduped": False} == job


async def test_a_key_gives_the_first_job_again(each_api: Api) -> None:
    first = await each_api.post(idempotency_key="order:1", payload={"n": 1})
    again = await each_api.client.post(
        "/v1/jobs", content=f'{{"payload": {{ "n" : 1 }}, "name": "{NAME}", "idempotency_key": "order:1"}}',
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    assert again.status_code == 200
    assert (again.json()["id"], again.json()["deduped"]) == (first["id"], True)


async def test_a_key_with_another_payload_is_a_mismatch(each_api: Api) -> None:
    first = await each_api.post(idempotency_key="order:1", payload={"n": 1})
    other = await each_api.client.post(
        "/v1/jobs", json={"name": NAME, "payload": {"n": 2}, "idempotency_key": "order:1"}
    )
    assert code_of(other) == (409, "IDEMPOTENCY_MISMATCH")
    assert other.json()["existing_id"] == first["id"]


async def test_a_taken_key_is_an_error_where_that_was_asked_for(each_api: Api) -> None:
    first = await each_api.post(idempotency_key="order:1")
    other = await each_api.client.post(
        "/v1/jobs", json={"name": NAME, "payload": {}, "idempotency_key": "order:1", "on_conflict": "error"}
    )
    assert code_of(other) == (409, "JOB_DUPLICATE")
    assert other.json()["existing_id"] == first["id"]


async def test_a_purged_job_whose_key_is_still_taken_is_answered_by_its_ids(api: Api) -> None:
    fields = {"idempotency_key": "order:1", "dedupe_for_ms": 86_400_000}
    first = await api.post(**fields)
    await api.finish()
    await api.env.advance(timedelta(hours=1))
    assert await api.env.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta(minutes=1))) == 1
    again = await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}, **fields})
    assert again.status_code == 200
    assert again.json()["id"] == first["id"]
    assert (again.json()["state"], again.json()["deduped"]) == (None, True)


async def test_a_delayed_job_waits(api: Api) -> None:
    job = await api.post(delay_ms=60_000)
    assert (job["state"], job["state_reason"]) == ("delayed", "scheduled")
    assert job["run_at"] > job["created_at"]


async def test_an_unknown_name_is_refused_and_found_once_published(api: Api) -> None:
    body = {"name": "os.system", "payload": {}}
    assert code_of(await api.client.post("/v1/jobs", json=body)) == (404, "JOB_UNKNOWN")
    await api.env.driver.publish_job_types([job_type("os.system")])
    assert (await api.client.post("/v1/jobs", json=body)).status_code == 201


async def test_a_payload_is_measured_against_the_published_schema(api: Api) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await api.env.driver.publish_job_types([job_type("typed", schema=schema)])
    for payload in ({}, {"n": "SECRET-VALUE"}):
        response = await api.client.post("/v1/jobs", json={"name": "typed", "payload": payload})
        assert code_of(response) == (422, "PAYLOAD_INVALID")
        assert all(error["pointer"].startswith("/payload") for error in response.json()["errors"])
        assert "SECRET-VALUE" not in response.text
    assert (await api.client.post("/v1/jobs", json={"name": "typed", "payload": {"n": 1}})).status_code == 201


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": 1}, "/name"),
        ({"name": "UPPER"}, "/name"),
        ({"name": "a\u202eb"}, "/name"),
        ({"name": "x" * 129}, "/name"),
        ({"queue": ""}, "/queue"),
        ({"queue": "a b"}, "/queue"),
        ({"priority": "1"}, "/priority"),
        ({"priority": True}, "/priority"),
        ({"priority": 1.0}, "/priority"),
        ({"priority": 10}, "/priority"),
        ({"priority": -1}, "/priority"),
        ({"priority": 2**63}, "/priority"),
        ({"delay_ms": -1}, "/delay_ms"),
        ({"delay_ms": 2**63}, "/delay_ms"),
        ({"delay_ms": "1"}, "/delay_ms"),
        ({"timeout_ms": 0}, "/timeout_ms"),
        ({"max_attempts": 0}, "/max_attempts"),
        ({"max_attempts": 26}, "/max_attempts"),
        ({"dedupe_for_ms": 0}, "/dedupe_for_ms"),
        ({"run_at": 1_800_000_000}, "/run_at"),
        ({"run_at": "1800000000"}, "/run_at"),
        ({"run_at": "2027-01-01T00:00:00"}, "/run_at"),
        ({"run_at": "2027-01-01T24:00:00Z"}, "/run_at"),
        ({"run_at": "2027-01-01T23:59:60Z"}, "/run_at"),
        ({"run_at": "2027-02-30T00:00:00Z"}, "/run_at"),
        ({"run_at": "9999-12-31T23:59:59-14:00"}, "/run_at"),
        ({"run_at": "9999-12-31T23:59:59Z"}, "/run_at"),
        ({"run_at": "0001-01-01T00:00:00+14:00"}, "/run_at"),
        ({"run_at": "20000-01-01T00:00:00Z"}, "/run_at"),
        ({"run_at": "infinity"}, "/run_at"),
        ({"run_at": "1999-01-01T00:00:00Z"}, "/run_at"),
        ({"idempotency_key": ""}, "/idempotency_key"),
        ({"idempotency_key": "  "}, "/idempotency_key"),
        ({"idempotency_key": "a\nb"}, "/idempotency_key"),
        ({"idempotency_key": "k" * 256}, "/idempotency_key"),
        ({"on_conflict": "ignore"}, "/on_conflict"),
        ({"tags": "x"}, "/tags"),
        ({"tags": [1]}, "/tags/0"),
        ({"tags": ["x"] * 21}, "/tags"),
        ({"tags": [""]}, "/tags/0"),
        ({"meta": []}, "/meta"),
        ({"parent_id": "x"}, "/parent_id"),
        ({"parent_id": f"{{{JOB_ID}}}"}, "/parent_id"),
        ({"tenant": "other"}, "/tenant"),
        ({"surprise/~": 1}, "/surprise~1~0"),
        ({"run_at": "2027-01-01T00:00:00Z", "delay_ms": 1}, ""),
    ],
)
async def test_a_field_that_does_not_fit_is_named(api: Api, fields: dict[str, Any], pointer: str) -> None:
    response = await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}, **fields})
    assert code_of(response) == (422, "REQUEST_INVALID")
    assert response.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("fields", "pointer", "says"),
    [
        ({"timeout_ms": 60_001}, "/timeout_ms", "timeout_ms must be from 1 to 60000 milliseconds"),
        ({"dedupe_for_ms": 5}, "/dedupe_for_ms", "dedupe_for_ms needs a key"),
        ({"max_attempts": 26}, "/max_attempts", "max_attempts must be from 1 to 25"),
    ],
)
async def test_what_the_job_type_refuses_is_named_as_the_body_spells_it(
    api: Api, fields: dict[str, Any], pointer: str, says: str
) -> None:
    await api.env.driver.publish_job_types([job_type("short", timeout_ms=60_000)])
    response = await api.client.post("/v1/jobs", json={"name": "short", "payload": {}, **fields})
    assert code_of(response) == (422, "REQUEST_INVALID")
    problem = response.json()
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert says in problem["detail"]
    assert says in problem["errors"][0]["detail"]
    assert pointer.removeprefix("/") in problem["fix"]


async def test_what_a_template_lacks_is_named_within_the_body(api: Api) -> None:
    rule = {"template": "order:{order.id}"}
    await api.env.driver.publish_job_types([job_type("keyed", idempotency_key=rule)])
    response = await api.client.post("/v1/jobs", json={"name": "keyed", "payload": {"order": {}}})
    assert code_of(response) == (422, "PAYLOAD_INVALID")
    [error] = response.json()["errors"]
    assert error["pointer"] == "/payload/order/id"
    assert "order.id is missing" in error["detail"]


async def test_a_payload_that_is_too_large_by_itself_is_named_within_the_body(api: Api) -> None:
    response = await api.client.post("/v1/jobs", json={"name": NAME, "payload": "x" * 256 * 1024})
    assert code_of(response) == (413, "PAYLOAD_TOO_LARGE")
    assert [error["pointer"] for error in response.json()["errors"]] == ["/payload"]


@pytest.mark.parametrize(
    ("rule", "value", "status"),
    [
        ({"type": "number", "multipleOf": 0.5}, 10**400, 201),
        ({"type": "number", "multipleOf": 7.5}, 10**400, 422),
        ({"type": "string", "pattern": r"^\p{L}+$"}, "Größe", 201),
        ({"type": "string", "pattern": r"^\p{L}+$"}, "a1", 422),
        ({"type": "array", "uniqueItems": True}, [{"n": number} for number in range(3000)], 201),
        ({"type": "array", "uniqueItems": True}, [{"n": 1}, {"n": 1.0}], 422),
    ],
)
async def test_rules_that_a_model_may_have_never_fail_the_service(
    api: Api, rule: dict[str, Any], value: object, status: int
) -> None:
    await api.env.driver.publish_job_types([job_type("ruled", schema={"properties": {"x": rule}})])
    response = await api.client.post("/v1/jobs", json={"name": "ruled", "payload": {"x": value}})
    assert response.status_code == status


@pytest.mark.parametrize("missing", ["name", "payload"])
async def test_name_and_payload_must_be_there(api: Api, missing: str) -> None:
    body = {"name": NAME, "payload": {}}
    del body[missing]
    response = await api.client.post("/v1/jobs", json=body)
    assert code_of(response) == (422, "REQUEST_INVALID")
    assert response.json()["errors"][0]["pointer"] == f"/{missing}"


async def test_minimal_answers_have_no_body(api: Api) -> None:
    response = await api.client.post(
        "/v1/jobs", json={"name": NAME, "payload": {}}, headers={"Prefer": "return=minimal"}
    )
    assert (response.status_code, response.content) == (201, b"")
    assert response.headers["preference-applied"] == "return=minimal"
    assert UUID(response.headers["location"].rsplit("/", 1)[1]).version == 7


async def test_the_trace_a_request_came_in_is_kept(api: Api) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    response = await api.client.post(
        "/v1/jobs",
        json={"name": NAME, "payload": {}},
        headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"},
    )
    assert response.json()["trace"] == {"trace_id": trace_id}
    longer = f"01-{trace_id}-b7ad6b7169203331-01-more"
    for bad in ("00-zz-b7ad6b7169203331-01", f"00-{'0' * 32}-b7ad6b7169203331-01", longer, "x" * 300):
        response = await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}}, headers={"traceparent": bad})
        assert (response.status_code, response.json()["trace"]) == (201, None)


async def test_an_enqueue_whose_reply_was_lost_is_repeated_under_its_id(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[NewJob] = []
    plain = MemoryDriver.enqueue

    async def lose_the_first_replies(self: MemoryDriver, job: NewJob) -> Enqueued:
        answer = await plain(self, job)
        stored.append(job)
        if len(stored) <= 2:
            raise DriverUnavailable("the connection broke", fix="try again")
        return answer

    monkeypatch.setattr(MemoryDriver, "enqueue", lose_the_first_replies)
    job = await api.post()
    assert [str(each.id) for each in stored] == [job["id"]] * 3
    assert len((await api.client.get("/v1/jobs")).json()["items"]) == 1
