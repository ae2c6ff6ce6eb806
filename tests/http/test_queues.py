"""The controls of queues over HTTP: until when, how many run, how many wait, and what a full queue answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.api_key import Identity, Scope
from app.domain.queue import MOST_LIMIT
from app.http.answers import Queue
from tests.http.api import Api, code_of
from tests.support.drivers import NAME, new_job

MAIL = "/v1/queues/mail"
ANY = {"If-Match": "*"}


async def shown(api: Api) -> dict[str, Any]:
    response = await api.client.get(MAIL)
    assert response.status_code == 200, response.text
    Queue.model_validate_json(response.content)
    found: dict[str, Any] = response.json()
    return found


async def test_a_pause_has_an_end(each_api: Api) -> None:
    api = each_api
    until = (api.env.now() + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    paused = await api.client.post(f"{MAIL}/pause", json={"reason": "the server moves", "until": until})
    assert paused.status_code == 200, paused.text
    document = await shown(api)
    assert document == paused.json()
    assert (document["is_paused"], document["paused_by"], document["paused_until"]) == (True, "dev", until)
    await api.env.advance(timedelta(hours=1))
    assert code_of(await api.client.get(MAIL)) == (404, "NOT_FOUND")


async def test_a_pause_that_would_be_over_is_refused(each_api: Api) -> None:
    api = each_api
    for until in (api.env.now(), api.env.now() - timedelta(days=1)):
        refused = await api.client.post(f"{MAIL}/pause", json={"until": until.isoformat()})
        assert code_of(refused) == (422, "REQUEST_INVALID")
        assert refused.json()["errors"][0]["pointer"] == "/until"
    assert code_of(await api.client.get(MAIL)) == (404, "NOT_FOUND")


async def test_limits_are_set_one_by_one_and_taken_away(each_api: Api) -> None:
    api = each_api
    both = await api.client.patch(MAIL, headers=ANY, json={"concurrency": 8, "max_depth": 100})
    assert both.status_code == 200, both.text
    assert (both.json()["concurrency"], both.json()["max_depth"]) == (8, 100)
    assert (await api.client.patch(MAIL, headers=ANY, json={"max_depth": 0})).json()["concurrency"] == 8
    document = await shown(api)
    assert (document["concurrency"], document["max_depth"]) == (8, 0)
    assert (await api.client.patch(MAIL, headers=ANY, json={})).json() == document
    gone = await api.client.patch(MAIL, headers=ANY, json={"concurrency": None, "max_depth": None})
    assert (gone.json()["concurrency"], gone.json()["max_depth"]) == (None, None)
    assert code_of(await api.client.get(MAIL)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    [
        {"concurrency": 0},
        {"concurrency": MOST_LIMIT + 1},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"max_depth": -1},
        {"max_depth": "10"},
        {"rate": 1},
    ],
    ids=str,
)
async def test_limits_that_cannot_be_are_refused(each_api: Api, body: dict[str, Any]) -> None:
    assert code_of(await each_api.client.patch(MAIL, headers=ANY, json=body)) == (422, "REQUEST_INVALID")
    assert code_of(await each_api.client.patch("/v1/queues/A%20B", headers=ANY, json={"concurrency": 1})) == (
        422,
        "REQUEST_INVALID",
    )


async def test_a_full_queue_answers_429_with_when_to_come_back(each_api: Api) -> None:
    api = each_api
    await api.client.patch(MAIL, headers=ANY, json={"max_depth": 1})
    await api.env.driver.enqueue(new_job(queue="mail"))
    refused = await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}, "queue": "mail"})
    assert code_of(refused) == (429, "QUEUE_FULL")
    assert refused.headers["Retry-After"] == "1"
    problem = refused.json()
    assert (problem["retryable"], problem["limit"]) == (True, 1)
    assert "outlast queues set mail --max-depth" in problem["fix"]


async def test_turns_and_weights_are_set_and_shown(each_api: Api) -> None:
    api = each_api
    made = await api.client.patch(MAIL, headers=ANY, json={"is_fair": True, "weights": {"acme": 3, "globex": 2}})
    assert made.status_code == 200, made.text
    assert (made.json()["is_fair"], made.json()["weights"]) == (True, {"acme": 3, "globex": 2})
    assert (await api.client.patch(MAIL, headers=ANY, json={"weights": {"globex": None}})).json()["weights"] == {
        "acme": 3
    }
    assert (await shown(api))["is_fair"] is True
    off = await api.client.patch(MAIL, headers=ANY, json={"is_fair": False})
    assert (off.json()["is_fair"], off.json()["weights"]) == (False, {})
    assert code_of(await api.client.get(MAIL)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "weights", [{"a": 0}, {"a": 1001}, {"": 1}, {"a\n": 1}, {"a": "3"}, {"a": 1.5}, {"a": True}], ids=str
)
async def test_weights_that_cannot_be_are_refused(each_api: Api, weights: dict[str, Any]) -> None:
    refused = await each_api.client.patch(MAIL, headers=ANY, json={"weights": weights})
    assert code_of(refused) == (422, "REQUEST_INVALID")
    assert refused.json()["errors"][0]["pointer"].startswith("/weights")


async def test_a_key_of_one_tenant_sees_its_own_weight_and_sets_none(each_api: Api) -> None:
    api = each_api
    await api.client.patch(MAIL, headers=ANY, json={"is_fair": True, "weights": {"acme": 3, "globex": 2}})
    api.act_as(Identity(name="of acme", tenant="acme", scopes=frozenset(Scope)))
    assert (await shown(api))["weights"] == {"acme": 3}
    assert (await api.client.get("/v1/queues")).json()["items"][0]["weights"] == {"acme": 3}
    assert (await api.client.patch(MAIL, headers=ANY, json={"concurrency": 2})).json()["weights"] == {"acme": 3}
    refused = await api.client.patch(MAIL, headers=ANY, json={"weights": {"acme": 9}})
    assert code_of(refused) == (403, "FORBIDDEN")
    assert "--all-tenants" in refused.json()["fix"]


async def test_changing_a_queue_needs_the_scope(locked: Api) -> None:
    reader = locked.client_with({})
    for response in (
        await reader.patch(MAIL, headers=ANY, json={"concurrency": 1}),
        await reader.post(f"{MAIL}/pause", json={"until": "2090-01-01T00:00:00Z"}),
    ):
        assert response.status_code == 401


async def test_a_queue_is_only_limited_as_it_was_seen(each_api: Api) -> None:
    client = each_api.client
    await client.patch(MAIL, headers=ANY, json={"concurrency": 8})
    seen = await client.get(MAIL)
    known = {"If-None-Match": seen.headers["etag"]}
    assert (await client.get(MAIL, headers=known)).status_code == 304
    assert code_of(await client.patch(MAIL, json={"concurrency": 9})) == (428, "PRECONDITION_REQUIRED")
    await each_api.env.enqueue(queue="mail")
    assert (await client.get(MAIL, headers=known)).status_code == 200, "it is fuller than it was"
    asked = {"If-Match": seen.headers["etag"]}
    changed = await client.patch(MAIL, headers=asked, json={"concurrency": 9})
    assert (changed.status_code, changed.json()["concurrency"]) == (200, 9), "how full it is, is no setting"
    assert changed.headers["etag"] == (await client.get(MAIL)).headers["etag"] != seen.headers["etag"]
    assert code_of(await client.patch(MAIL, headers=asked, json={"concurrency": 10})) == (412, "PRECONDITION_FAILED")
    asked = {"If-Match": f'"{changed.json()["version"]}"'}
    assert (await client.post(f"{MAIL}/pause")).status_code == 200
    assert (await client.patch(MAIL, headers=asked, json={"max_depth": 1})).status_code == 412, "it is paused by now"
    assert [row["action"] for row in (await client.get("/v1/audit")).json()["items"]] == [
        "queue.pause",
        "queue.update",
        "queue.update",
    ]
