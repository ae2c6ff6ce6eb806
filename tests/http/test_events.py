"""Events over HTTP: emitted, matched, listed, refused, each of one tenant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.http.run_answers import EmittedEvent, EventList
from tests.http.api import Api, code_of
from tests.http.runs import approval, suspend

APPROVED = {"name": "order.approved", "key": "7", "payload": {"by": "anna", "limit": 10}}


async def emit(api: Api, **fields: Any) -> dict[str, Any]:
    response = await api.client.post("/v1/events", json=APPROVED | fields)
    assert response.status_code == 202, response.text
    EmittedEvent.model_validate(response.json())
    found: dict[str, Any] = response.json()
    return found


async def test_an_event_wakes_the_runs_that_wait_for_it(each_api: Api) -> None:
    api = each_api
    jobs = []
    for key in ("7", "7", "8"):
        jobs.append(await api.post())
        await suspend(api, await api.claim(), approval(0, key=key))
    response = await api.client.post(
        "/v1/events",
        content=b'{"name": "order.approved", "key": "7", "payload": {"by":  1.5e300}}',
        headers={"Content-Type": "application/json"},
    )
    assert (response.status_code, response.json()["matched"]) == (202, 2)
    assert [(await api.get(job))["state"] for job in jobs] == ["ready", "ready", "suspended"]
    steps = await api.client.get(jobs[0]["links"]["steps"])
    assert '"value":{"by":  1.5e300}' in steps.text, "byte for byte"
    assert steps.json()["items"][0]["timed_out"] is False


async def test_an_event_that_nobody_waits_for_is_kept_for_who_comes_later(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    claimed = await api.claim()
    assert (await emit(api))["matched"] == 0
    await suspend(api, claimed, approval(0))
    assert (await api.get(job))["state"] == "ready"
    (only,) = (await api.client.get(job["links"]["steps"])).json()["items"]
    assert only["value"] == APPROVED["payload"]


async def test_events_are_listed_newest_first_page_by_page(each_api: Api) -> None:
    api = each_api
    for number in range(5):
        await api.env.advance(timedelta(seconds=1))
        await emit(api, key=str(number), payload=number)
    await emit(api, name="stock.counted", payload=None)
    first = await api.client.get("/v1/events?name=order.approved&limit=2")
    EventList.model_validate(first.json())
    assert [event["key"] for event in first.json()["items"]] == ["4", "3"]
    assert (first.json()["items"][0]["emitted_by"], first.json()["items"][0]["payload"]) == ("dev", 4)
    second = await api.client.get(first.headers["link"].partition(">")[0].removeprefix("<"))
    third = await api.client.get(f"/v1/events?name=order.approved&limit=2&cursor={second.json()['next_cursor']}")
    assert [event["key"] for event in (*second.json()["items"], *third.json()["items"])] == ["2", "1", "0"]
    assert third.json()["next_cursor"] is None
    other = await api.client.get(f"/v1/events?cursor={second.json()['next_cursor']}")
    assert code_of(other) == (400, "CURSOR_INVALID")
    only = (await api.client.get("/v1/events?key=3")).json()["items"]
    assert [(event["name"], event["key"]) for event in only] == [("order.approved", "3")]


async def test_an_event_is_of_its_callers_tenant(locked: Api) -> None:
    api = locked
    other = await api.env.enqueue(tenant="north")
    await suspend(api, await api.claim(), approval(0))
    assert (await emit(api))["matched"] == 0
    assert code_of(await api.client.post("/v1/events", json=APPROVED | {"tenant": "north"})) == (403, "FORBIDDEN")
    assert code_of(await api.client.get("/v1/events?tenant=north")) == (403, "FORBIDDEN")
    (event,) = (await api.client.get("/v1/events")).json()["items"]
    assert (event["tenant"], event["emitted_by"]) == ("default", "bootstrap")
    assert (await api.env.describe(other)).state == "suspended"


async def test_a_caller_for_all_tenants_names_one(api: Api) -> None:
    await api.env.enqueue(tenant="north")
    await suspend(api, await api.claim(), approval(0))
    assert (await emit(api))["matched"] == 0
    assert (await emit(api, tenant="north"))["matched"] == 1
    tenants = [event["tenant"] for event in (await api.client.get("/v1/events")).json()["items"]]
    assert tenants == ["north", "default"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": "Order"}, "/name"),
        ({"name": 7}, "/name"),
        ({"key": ""}, "/key"),
        ({"key": "a\nb"}, "/key"),
        ({"key": "x" * 256}, "/key"),
        ({"tenant": " "}, "/tenant"),
        ({"id": "x"}, "/id"),
    ],
)
async def test_what_is_no_event_is_refused(api: Api, fields: dict[str, Any], pointer: str) -> None:
    response = await api.client.post("/v1/events", json=APPROVED | fields)
    assert code_of(response) == (422, "REQUEST_INVALID")
    assert response.json()["errors"][0]["pointer"] == pointer
    assert (await api.client.get("/v1/events")).json()["items"] == []


async def test_a_payload_is_held_to_the_limits_of_payloads(api: Api) -> None:
    deep: Any = 1
    for _ in range(65):
        deep = [deep]
    response = await api.client.post("/v1/events", json=APPROVED | {"payload": deep})
    assert code_of(response) == (422, "JSON_INVALID")
    response = await api.client.post("/v1/events", json=APPROVED | {"payload": "x" * 262_143})
    assert code_of(response) == (413, "PAYLOAD_TOO_LARGE")
    assert (await api.client.get("/v1/events?key=")).status_code == 422
    assert code_of(await api.client.get("/v1/events?key=%20")) == (422, "REQUEST_INVALID")
    assert code_of(await api.client.get("/v1/events?sort=x")) == (422, "REQUEST_INVALID")


async def test_an_event_needs_no_payload(api: Api) -> None:
    response = await api.client.post("/v1/events", json={"name": "stock.counted", "key": "north"})
    assert response.status_code == 202
    (event,) = (await api.client.get("/v1/events")).json()["items"]
    assert event["payload"] is None
