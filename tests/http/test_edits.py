from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.outcome import Held, Retried
from app.http.answers import Job
from app.http.answers_audit import RunNowJob
from app.http.documents import JOB_ID
from tests.http.api import Api, code_of, dead, failure, job_type
from tests.support.drivers import NAME

HOUR_MS = 3_600_000


async def _get(api: Api, job_id: str) -> Any:
    return await api.client.get(f"/v1/jobs/{job_id}")


async def _patch(api: Api, job_id: str, fields: dict[str, Any], etag: str | None = "*") -> Any:
    headers = {} if etag is None else {"If-Match": etag}
    return await api.client.patch(f"/v1/jobs/{job_id}", json=fields, headers=headers)


# --- run now


async def test_a_delayed_job_is_let_go(each_api: Api) -> None:
    api = each_api
    job = await api.post(delay_ms=HOUR_MS)
    response = await api.client.post(f"/v1/jobs/{job['id']}/run-now", json={"reason": "the customer waits"})
    assert response.status_code == 200
    RunNowJob.model_validate(response.json())
    assert (response.json()["verdict"], response.json()["state"]) == ("made_ready", "ready")
    assert response.headers["ETag"]
    again = await api.client.post(f"/v1/jobs/{job['id']}/run-now")
    assert (again.status_code, again.json()["verdict"]) == (200, "already_ready")
    await api.finish(Retried(error=failure(), delay=timedelta(hours=1)))
    retried = await api.client.post(f"/v1/jobs/{job['id']}/run-now")
    assert (retried.json()["verdict"], retried.json()["attempt"]) == ("made_ready", 1)
    await api.finish(dead())
    refused = await api.client.post(f"/v1/jobs/{job['id']}/run-now")
    assert code_of(refused) == (409, "JOB_STATE_CONFLICT")
    assert refused.json()["state"] == "dead"


# --- change


async def test_a_job_is_changed_as_it_was_seen(each_api: Api) -> None:
    api = each_api
    job = await api.post(tags=["old"])
    etag = (await _get(api, job["id"])).headers["ETag"]
    response = await _patch(
        api, job["id"], {"priority": 1, "tags": ["a", "b"], "max_attempts": 30, "reason": "it is late"}, etag
    )
    assert response.status_code == 200, response.text
    Job.model_validate(response.json())
    shown = response.json()
    assert (shown["priority"], shown["tags"], shown["max_attempts"]) == (1, ["a", "b"], 30)
    assert response.headers["ETag"] != etag
    assert response.headers["ETag"] == (await _get(api, job["id"])).headers["ETag"]


async def test_of_two_with_one_version_one_wins(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    etag = (await _get(api, job["id"])).headers["ETag"]
    assert (await _patch(api, job["id"], {"tags": ["a"]}, etag)).status_code == 200
    stale = await _patch(api, job["id"], {"tags": ["b"]}, etag)
    assert code_of(stale) == (412, "PRECONDITION_FAILED")
    assert stale.json()["state"] == "ready"
    assert (await _get(api, job["id"])).json()["tags"] == ["a"]


async def test_an_edit_without_a_version_is_refused(api: Api) -> None:
    job = await api.post()
    assert code_of(await _patch(api, job["id"], {"priority": 1}, None)) == (428, "PRECONDITION_REQUIRED")
    for etag, expected in (
        ('W/"{tag}"', (412, "PRECONDITION_FAILED")),
        ('"another"', (412, "PRECONDITION_FAILED")),
        ('"one, tag"', (422, "REQUEST_INVALID")),
        ('"one,tag"', (412, "PRECONDITION_FAILED")),
        ("{tag}", (422, "REQUEST_INVALID")),
        ('"{tag}', (422, "REQUEST_INVALID")),
        ("", (412, "PRECONDITION_FAILED")),
    ):
        tag = (await _get(api, job["id"])).headers["ETag"].strip('"')
        assert code_of(await _patch(api, job["id"], {"priority": 1}, etag.format(tag=tag))) == expected, etag
    several = f'"another", {(await _get(api, job["id"])).headers["ETag"]}'
    assert (await _patch(api, job["id"], {"priority": 1}, several)).status_code == 200


async def test_a_job_is_rescheduled(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    later = (api.env.now() + timedelta(hours=2)).isoformat()
    response = await _patch(api, job["id"], {"run_at": later})
    assert (response.json()["state"], response.json()["state_reason"]) == ("delayed", "scheduled")
    passed = (api.env.now() - timedelta(minutes=1)).isoformat()
    assert (await _patch(api, job["id"], {"run_at": passed})).json()["state"] == "ready"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reason": "only this"},
        {"priority": 10},
        {"priority": "1"},
        {"priority": None},
        {"tags": None},
        {"tags": [""]},
        {"tags": ["x"] * 21},
        {"max_attempts": 0},
        {"max_attempts": 40_000},
        {"run_at": "tomorrow"},
        {"run_at": "2026-01-01T00:00:00"},
        {"run_at": "1999-01-01T00:00:00Z"},
        {"run_at": "9999-01-01T00:00:00Z"},
        {"queue": "other"},
        {"priority": 1, "reason": ""},
    ],
)
async def test_an_edit_that_does_not_fit_is_refused(api: Api, fields: dict[str, Any]) -> None:
    job = await api.post()
    assert code_of(await _patch(api, job["id"], fields)) == (422, "REQUEST_INVALID")
    assert (await _get(api, job["id"])).json()["version"] == job["version"]


async def test_a_running_job_is_not_changed(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    await api.claim()
    refused = await _patch(api, job["id"], {"priority": 1})
    assert code_of(refused) == (409, "JOB_STATE_CONFLICT")
    assert refused.json()["state"] == "running"


# --- delete


async def test_a_job_that_ended_is_deleted(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    assert code_of(await api.client.delete(f"/v1/jobs/{job['id']}")) == (409, "JOB_STATE_CONFLICT")
    await api.finish(dead())
    etag = (await _get(api, job["id"])).headers["ETag"]
    stale = await api.client.delete(f"/v1/jobs/{job['id']}", headers={"If-Match": '"another"'})
    assert code_of(stale) == (412, "PRECONDITION_FAILED")
    response = await api.client.delete(
        f"/v1/jobs/{job['id']}", headers={"If-Match": etag}, params={"reason": "a test job"}
    )
    assert (response.status_code, response.content) == (204, b"")
    assert code_of(await _get(api, job["id"])) == (404, "JOB_NOT_FOUND")
    assert code_of(await api.client.delete(f"/v1/jobs/{job['id']}")) == (404, "JOB_NOT_FOUND")


async def test_a_held_job_is_deleted(api: Api) -> None:
    job = await api.post()
    await api.finish(Held(reason="does not fit"))
    assert (await api.client.delete(f"/v1/jobs/{job['id']}")).status_code == 204


# --- duplicate


async def test_work_is_done_again_with_another_input(each_api: Api) -> None:
    api = each_api
    await api.env.driver.publish_job_types([job_type()])
    body = '{"name":"%s","payload":{"shop":"hamburg","n":1.50,"big":123456789012345678901234567890,"x":{"a":1,"b":2}}'
    response = await api.client.post(
        "/v1/jobs",
        content=(body % NAME + ',"priority":2,"tags":["t"],"meta":{"k":1}}').encode(),
        headers={"Content-Type": "application/json"},
    )
    first = response.json()
    await api.finish(dead())
    response = await api.client.post(
        f"/v1/jobs/{first['id']}/duplicate",
        json={"input_patch": {"shop": "berlin", "x": {"a": None, "c": [None]}}, "reason": "wrong shop"},
    )
    assert response.status_code == 201, response.text
    Job.model_validate(response.json())
    again = response.json()
    assert response.headers["Location"] == f"/v1/jobs/{again['id']}"
    assert (again["parent_id"], again["state"], again["enqueued_by"]) == (first["id"], "ready", "dev")
    assert (again["priority"], again["tags"], again["meta"]) == (2, ["t"], {"k": 1})
    raw = response.text
    assert '"n":1.50,"big":123456789012345678901234567890' in raw
    assert again["payload"]["shop"] == "berlin"
    assert again["payload"]["x"] == {"b": 2, "c": [None]}
    assert (await _get(api, first["id"])).json()["state"] == "dead"
    same = (await api.client.post(f"/v1/jobs/{first['id']}/duplicate")).json()
    assert same["payload"]["shop"] == "hamburg"


async def test_a_duplicate_is_admitted_like_any_job(api: Api) -> None:
    schema = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
    await api.env.driver.publish_job_types([job_type(schema=schema, idempotency_key={"template": "order:{order}"})])
    first = await api.post(payload={"order": 1})
    taken = await api.client.post(f"/v1/jobs/{first['id']}/duplicate")
    assert code_of(taken) == (409, "JOB_DUPLICATE")
    assert taken.json()["existing_id"] == first["id"]
    other = await api.client.post(f"/v1/jobs/{first['id']}/duplicate", json={"input_patch": {"order": 2}})
    assert (other.status_code, other.json()["idempotency_key"]) == (201, "order:2")
    unfit = await api.client.post(f"/v1/jobs/{first['id']}/duplicate", json={"input_patch": {"order": "x"}})
    assert code_of(unfit) == (422, "PAYLOAD_INVALID")
    (error,) = unfit.json()["errors"]
    assert (error["in"], error["pointer"]) == ("body", "/input_patch/order")
    assert "integer" in error["detail"]


@pytest.mark.parametrize("action", ["run-now", "duplicate"])
async def test_actions_on_nothing_are_not_found(api: Api, action: str) -> None:
    for job_id in (JOB_ID, "nonsense"):
        assert code_of(await api.client.post(f"/v1/jobs/{job_id}/{action}")) == (404, "JOB_NOT_FOUND")
        assert code_of(await _patch(api, job_id, {"priority": 1})) == (404, "JOB_NOT_FOUND")
        assert code_of(await api.client.delete(f"/v1/jobs/{job_id}")) == (404, "JOB_NOT_FOUND")


async def test_another_tenants_job_is_as_absent(locked: Api) -> None:
    theirs = await locked.env.enqueue(tenant="other", delay=timedelta(hours=1))
    for answer in (
        await locked.client.post(f"/v1/jobs/{theirs}/run-now"),
        await locked.client.post(f"/v1/jobs/{theirs}/duplicate"),
        await _patch(locked, str(theirs), {"priority": 1}),
        await locked.client.delete(f"/v1/jobs/{theirs}"),
    ):
        assert code_of(answer) == (404, "JOB_NOT_FOUND")
    assert (await locked.env.describe(theirs)).priority == 5
