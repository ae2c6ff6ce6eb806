"""Bulk operations over HTTP: the dry run, the count that must hold, what is shown, and whose they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.domain.job import JobId
from app.http.auth import Identity, Scope
from tests.http.api import Api, code_of
from tests.support.bulk import dead, store_of

PATH = "/v1/bulk-operations"


async def made(api: Api, action: str = "retry", **fields: Any) -> httpx.Response:
    selector = {"filter": fields.pop("filter")} if "filter" in fields else {"ids": fields.pop("ids")}
    return await api.client.post(PATH, json={"action": action, "selector": selector, **fields})


async def worked_off(api: Api) -> None:
    while await store_of(api.env).step() is not None:
        pass


async def test_a_dry_run_counts_and_changes_nothing(api: Api) -> None:
    job_id = await dead(api.env)
    await api.post()
    response = await made(api, filter={"state": ["dead"]}, dry_run=True)
    assert response.status_code == 200
    document = response.json()
    assert (document["dry_run"], document["matched"], document["capped"]) == (True, 1, False)
    assert document["selector"]["filter"]["state"] == ["dead"]
    assert document["notice"] == "only jobs enqueued in the last 7 days: the filter names no time"
    assert (await api.client.get(PATH)).json() == {"items": [], "next_cursor": None}
    assert (await api.get({"id": job_id}))["state"] == "dead"


@pytest.mark.parametrize("year", ["0001", "0536", "1969", "9999"])
async def test_a_filter_of_any_time_is_kept_and_means_what_it_says(each_api: Api, year: str) -> None:
    job_id, at = await dead(each_api.env), f"{year}-10-11T22:08:30.2Z"
    for bound, fits in (("created_after", year < "2000"), ("created_before", year > "2000")):
        response = await made(each_api, filter={"state": ["dead"], bound: at}, reason="all of them")
        assert (response.status_code, response.json()["matched"]) == (202, int(fits)), response.text
        await worked_off(each_api)
    assert (await each_api.get({"id": job_id}))["state"] == "ready"


async def test_an_operation_is_made_followed_and_done(api: Api) -> None:
    first, second = await dead(api.env), await dead(api.env)
    response = await made(api, filter={"state": ["dead"], "name": "demo.job"}, expected_count=2, reason="it is back")
    assert response.status_code == 202
    document = response.json()
    assert response.headers["location"] == f"{PATH}/{document['id']}" == document["links"]["self"]
    assert (document["state"], document["matched"], document["left"], document["done"]) == ("running", 2, 2, 0)
    assert (document["reason"], document["created_by"]) == ("it is back", "dev")

    await worked_off(api)

    shown = (await api.client.get(document["links"]["self"])).json()
    assert (shown["state"], shown["done"], shown["failed"], shown["left"]) == ("done", 2, 0, 0)
    assert shown["ended_at"] is not None
    items = (await api.client.get(document["links"]["items"])).json()["items"]
    assert [(item["job_id"], item["verdict"]) for item in items] == [(str(first), "done"), (str(second), "done")]
    assert (await api.get({"id": first}))["state"] == "ready"


async def test_another_number_than_expected_is_a_conflict_that_says_both(api: Api) -> None:
    await dead(api.env)
    response = await made(api, filter={"state": ["dead"]}, expected_count=7)
    assert code_of(response) == (409, "COUNT_CHANGED")
    assert (response.json()["expected"], response.json()["count"]) == (7, 1)


async def test_what_failed_is_shown_with_the_reason(api: Api) -> None:
    job_id = await dead(api.env, key="k")
    holder = await api.post(idempotency_key="k")
    document = (await made(api, ids=[str(job_id), holder["id"]])).json()
    assert document["selector"] == {"ids": 2, "filter": None}
    assert document["notice"] is None
    await worked_off(api)
    shown = (await api.client.get(f"{PATH}/{document['id']}")).json()
    errors = {error["job_id"]: (error["code"], error["message"]) for error in shown["errors_sample"]}
    assert errors == {
        str(job_id): ("JOB_DUPLICATE", f"job {holder['id']} holds its idempotency key"),
        holder["id"]: ("JOB_STATE_CONFLICT", "it is ready"),
    }
    only = await api.client.get(f"{PATH}/{document['id']}/items", params={"verdict": "failed", "limit": 1})
    (item,) = only.json()["items"]
    assert (item["job_id"], item["message"]) == (str(job_id), f"job {holder['id']} holds its idempotency key")
    following = await api.client.get(
        f"{PATH}/{document['id']}/items",
        params={"verdict": "failed", "limit": 1, "cursor": only.json()["next_cursor"]},
    )
    assert [item["job_id"] for item in following.json()["items"]] == [holder["id"]]
    assert following.json()["next_cursor"] is None


async def test_an_abort_stops_it_and_may_be_repeated(api: Api) -> None:
    for _ in range(3):
        await api.post()
    document = (await made(api, "cancel", filter={})).json()
    await store_of(api.env).step(batch=1)
    for _ in range(2):
        response = await api.client.post(f"{PATH}/{document['id']}/abort", json={"reason": "too many"})
        assert response.status_code == 200
        shown = response.json()
        assert (shown["state"], shown["done"], shown["left"]) == ("aborted", 1, 2)
        assert shown["ended_by"] == "dev"
    rows = (await api.client.get("/v1/audit", params={"target": document["id"]})).json()["items"]
    assert [(row["action"], row["outcome"]) for row in rows] == [
        ("bulk.abort", "unchanged"),
        ("bulk.abort", "done"),
        ("bulk.make", "done"),
    ]
    assert rows[1]["reason"] == "too many"


async def test_jobs_without_a_time_are_those_of_the_last_week(api: Api) -> None:
    await dead(api.env)
    await api.env.advance(timedelta(days=7, seconds=1))
    assert (await made(api, filter={"state": ["dead"]}, dry_run=True)).json()["matched"] == 0
    start = (api.env.now() - timedelta(days=8)).isoformat()
    response = await made(api, filter={"state": ["dead"], "created_after": start}, dry_run=True)
    assert (response.json()["matched"], response.json()["notice"]) == (1, None)
    listed = await api.client.get("/v1/jobs", params={"created_after": start})
    assert len(listed.json()["items"]) == 1
    listed = await api.client.get("/v1/jobs", params={"created_before": start})
    assert listed.json()["items"] == []


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"action": "explode", "selector": {"ids": []}}, "/action"),
        ({"action": "cancel", "selector": {}}, "/selector"),
        ({"action": "cancel", "selector": {"ids": [], "filter": None}}, "/selector/ids"),
        ({"action": "cancel", "selector": {"ids": ["x"]}}, "/selector/ids/0"),
        ({"action": "cancel", "selector": {"filter": {"state": ["gone"]}}}, "/selector/filter/state/0"),
        ({"action": "cancel", "selector": {"filter": {"state": ["dead"]}}}, "/selector/filter/state"),
        ({"action": "cancel", "selector": {"filter": {"colour": "red"}}}, "/selector/filter/colour"),
        ({"action": "cancel", "selector": {"filter": {}}, "priority": 3}, "/priority"),
        ({"action": "set_priority", "selector": {"filter": {}}}, "/priority"),
        ({"action": "set_priority", "selector": {"filter": {}}, "priority": 10}, "/priority"),
        ({"action": "reschedule", "selector": {"filter": {}}}, "/run_at"),
        (
            {"action": "reschedule", "selector": {"filter": {}}, "run_at": "2001-01-01T00:00:00Z"},
            "/run_at",
        ),
        ({"action": "cancel", "selector": {"filter": {}}, "expected_count": -1}, "/expected_count"),
    ],
)
async def test_what_means_nothing_is_refused_and_says_where(api: Api, fields: dict[str, Any], pointer: str) -> None:
    response = await api.client.post(PATH, json=fields)
    assert code_of(response)[1] == "REQUEST_INVALID"
    document = response.json()
    pointers = [error["pointer"] for error in document.get("errors") or ()] or [document.get("pointer")]
    assert pointer in pointers


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    absent = "0198c0f5-2a3b-7c4d-9e5f-6a7b8c9d0e1f"
    for path in (absent, "x", f"{absent}/items"):
        assert code_of(await api.client.get(f"{PATH}/{path}")) == (404, "NOT_FOUND")
    assert code_of(await api.client.post(f"{PATH}/{absent}/abort")) == (404, "NOT_FOUND")


async def test_operations_are_paged_newest_first(api: Api) -> None:
    ids = [(await made(api, "cancel", filter={})).json()["id"] for _ in range(3)]
    page = await api.client.get(PATH, params={"limit": 2})
    assert [item["id"] for item in page.json()["items"]] == ids[:0:-1]
    assert 'rel="next"' in page.headers["link"]
    rest = await api.client.get(PATH, params={"limit": 2, "cursor": page.json()["next_cursor"]})
    assert [item["id"] for item in rest.json()["items"]] == ids[:1]
    assert rest.json()["next_cursor"] is None


async def test_a_key_acts_on_its_own_tenant_alone(locked: Api) -> None:
    theirs = await dead(locked.env, tenant="berlin")
    mine: JobId = await dead(locked.env)
    assert code_of(await made(locked, filter={"tenant": "berlin"})) == (403, "FORBIDDEN")
    document = (await made(locked, filter={"state": ["dead"]})).json()
    assert document["matched"] == 1
    await made(locked, ids=[str(theirs)])
    await worked_off(locked)
    assert (await locked.env.describe(mine)).state == "ready"
    assert (await locked.env.describe(theirs)).state == "dead"


async def test_only_operators_make_and_abort(locked: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Identity(name="eve", tenant="default", scopes=frozenset({Scope.JOBS_READ}))
    document = (await made(locked, "cancel", filter={})).json()
    locked.act_as(reader)
    assert code_of(await made(locked, "cancel", filter={})) == (403, "FORBIDDEN")
    assert code_of(await locked.client.post(f"{PATH}/{document['id']}/abort")) == (403, "FORBIDDEN")
    assert (await locked.client.get(f"{PATH}/{document['id']}")).status_code == 200
