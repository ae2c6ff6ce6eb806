"""What the API has at which path: other paths, other methods, and parameters given twice are refused in words."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.http.api import Api, code_of
from tests.http.test_openapi import DOCUMENT, OPERATIONS

# A value for every query parameter there is.
FITTING = {"cron": "@daily", "tz": "UTC", "n": "3", "after": "2026-01-01T00:00:00Z",
    "limit": "2", "before": "7", "scope": "fleet", "cursor": "x", "name": "a", "queue": "a", "tenant": "default",
    "key": "a", "actor": "a", "action": "job.cancel", "target_kind": "job", "target": "a", "reason": "a",
    "created_after": "2026-01-01T00:00:00Z", "created_before": "2026-01-01T00:00:00Z",
    "finished_after": "2026-01-01T00:00:00Z", "finished_before": "2026-01-01T00:00:00Z", "count": "true",
    "parent_id": "01939b1c-0000-7000-8000-000000000000", "worker_id": "1", "error_code": "JOB_TIMEOUT",
    "run_at_after": "2026-01-01T00:00:00Z", "run_at_before": "2026-01-01T00:00:00Z", "sort": "-created_at",
    "window": "1h", "bucket": "5m",
}  # fmt: skip


@pytest.mark.parametrize(("method", "path"), [
    ("POST", "/v1/job-batch"), ("GET", "/v1/jobs/x/step"), ("GET", "/v1/events/streams"), ("POST", "/v1/event"),
    ("POST", "/v1/jobs/x/run-later"), ("POST", "/v1/jobs/x/forks"), ("PUT", "/v1/drains"), ("GET", "/v1/slot"),
    ("GET", "/v1/dead-letters/x"), ("GET", "/v1/stat"), ("GET", "/ui"), ("GET", "/docs"),
    ("GET", "/v1/jobs/"), ("GET", "/V1/jobs"), ("GET", "/"), ("BREW", "/coffee"),
])  # fmt: skip
async def test_what_is_not_served_is_not_found(api: Api, method: str, path: str) -> None:
    assert code_of(await api.client.request(method, path)) == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", sorted(DOCUMENT["paths"]))
async def test_a_method_that_a_path_does_not_have_is_answered_with_all_that_it_has(api: Api, path: str) -> None:
    allowed = {method.upper() for method in DOCUMENT["paths"][path]}
    address = re.sub(r"{\w+}", "x", path)
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"} - allowed:
        response = await api.client.request(method, address)
        assert response.status_code == 405, (method, path)
        assert response.headers["allow"] == ", ".join(sorted(allowed))
        if method != "HEAD":
            assert code_of(response) == (405, "REQUEST_INVALID")
            assert response.json()["fix"] == f"use {', '.join(sorted(allowed))}"


async def test_all_methods_are_named_below_the_path_the_service_is_mounted_under(api: Api) -> None:
    transport = httpx.ASGITransport(app=api.app, root_path="/jobs-service")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.delete("/jobs-service/v1/drain")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, POST")


def test_there_are_paths_of_two_methods() -> None:
    assert {path for path, methods in DOCUMENT["paths"].items() if len(methods) > 1} >= {"/v1/drain", "/v1/jobs"}


def takes_a_query(operation: dict[str, Any]) -> bool:
    return any(parameter["in"] == "query" for parameter in operation.get("parameters", ()))


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if takes_a_query(OPERATIONS[name])])
async def test_a_parameter_that_is_given_twice_is_refused_by_name(api: Api, operation: str) -> None:
    ((path, method),) = [(p, m) for p, its in DOCUMENT["paths"].items() for m in its if its[m] is OPERATIONS[operation]]
    path = path.replace("{job_id}", (await api.post())["id"])
    queries = [each for each in OPERATIONS[operation]["parameters"] if each["in"] == "query"]
    needed = [(each["name"], FITTING[each["name"]]) for each in queries if each.get("required")]
    for parameter in OPERATIONS[operation]["parameters"]:
        if parameter["in"] != "query" or parameter["schema"].get("type") == "array":
            continue
        name, value = parameter["name"], FITTING[parameter["name"]]
        others = [pair for pair in needed if pair[0] != name]
        once = await api.client.request(method, path, params=[(name, value), *others])
        assert once.status_code in {200, 400, 404, 409}, name
        twice = await api.client.request(method, path, params=[*[(name, value)] * 2, *others])
        assert code_of(twice) == (422, "REQUEST_INVALID"), name
        assert twice.json()["errors"] == [{"in": "query", "pointer": f"/{name}", "detail": "is given twice"}]


async def test_a_method_is_not_overridden(api: Api) -> None:
    headers = {"X-HTTP-Method-Override": "POST", "X-HTTP-Method": "DELETE"}
    assert "items" in (await api.client.get("/v1/jobs?", headers=headers)).json()
