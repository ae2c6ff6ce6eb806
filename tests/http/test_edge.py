"""What is true of every answer, and who gets one."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from structlog.contextvars import get_contextvars

from app.domain.errors import DriverUnavailable, SchemaOutdated, error_classes
from app.drivers.memory.driver import MemoryDriver
from app.http.auth import Identity, Scope
from app.http.caller import OPEN_PATHS, PROBLEMS, Needs, is_open_path
from app.http.headers import SECURITY_HEADERS
from app.http.problems import STATUS
from tests.http.api import KEY, Api, code_of, job_type
from tests.support.drivers import NAME


def routes_of(api: Api) -> list[tuple[str, str, APIRoute]]:
    """Give every route with a method and an address."""
    found = []
    for context in iter_route_contexts(api.app.routes):
        route = context.original_route
        assert isinstance(route, APIRoute), f"{route} has no auth marker"
        found += [(method, re.sub(r"{\w+}", "x", route.path), route) for method in sorted(route.methods or ())]
    return found


# --- who gets an answer


async def test_every_route_but_the_probes_needs_the_key(locked: Api) -> None:
    async with locked.client_with({}) as stranger:
        for method, path, _ in routes_of(locked):
            response = await stranger.request(method, path)
            if path in OPEN_PATHS:
                assert response.status_code == 200
            elif path == f"{PROBLEMS}x":
                assert code_of(response) == (404, "NOT_FOUND")
            else:
                assert code_of(response) == (401, "UNAUTHENTICATED"), path
                assert response.headers["www-authenticate"].startswith("Bearer")
        others = ("/", "/docs/", "/redoc", "/static/x", "/v1/nothing", "/livez/", "/livez/x", "//livez", "/problems")
        for path in others:
            assert code_of(await stranger.get(path)) == (401, "UNAUTHENTICATED"), path


async def test_every_route_but_the_probes_says_what_it_needs(locked: Api) -> None:
    for method, path, route in routes_of(locked):
        markers = [each.call for each in route.dependant.dependencies if isinstance(each.call, Needs)]
        assert bool(markers) != is_open_path(path), f"{method} {path} has no auth marker"


async def test_a_scope_that_is_missing_is_a_refusal(locked: Api) -> None:
    powerless = Identity(name="powerless", tenant="default", scopes=frozenset())
    locked.act_as(powerless)
    for method, path, route in routes_of(locked):
        needs = [each.call for each in route.dependant.dependencies if isinstance(each.call, Needs)]
        if needs and needs[0].scopes:
            assert code_of(await locked.client.request(method, path)) == (403, "FORBIDDEN"), path


async def test_payloads_are_kept_from_keys_that_may_not_read_them(locked: Api) -> None:
    job = await locked.post(payload={"secret": 1})
    scopes = frozenset({Scope.JOBS_READ, Scope.JOBS_WRITE})
    limited = Identity(name="limited", tenant="default", scopes=scopes)
    locked.act_as(limited)
    found = await locked.get(job)
    assert "payload" not in found
    assert "result" not in found
    assert code_of(await locked.client.get(job["links"]["result"])) == (403, "FORBIDDEN")


@pytest.mark.parametrize("headers", [
    [], ["Bearer"], ["Bearer "], [KEY], [f"Basic {KEY}"], [f"Bearer {KEY}x"], [f"Bearer {KEY[:-1]}"],
    [f"Bearer {KEY}", f"Bearer {KEY}"], [f"Bearer {KEY}, Bearer {KEY}"], ["Bearer \u00ff" + KEY],
])  # fmt: skip
async def test_only_the_key_opens(locked: Api, headers: list[str]) -> None:
    async with locked.client_with({}) as client:
        given = [(b"authorization", value.encode("latin-1")) for value in headers]
        response = await client.get("/v1/jobs", headers=given)
        assert code_of(response) == (401, "UNAUTHENTICATED")
        assert KEY not in response.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_key_opens(locked: Api, scheme: str) -> None:
    async with locked.client_with({"Authorization": f"{scheme} {KEY}"}) as client:
        assert (await client.get("/v1/jobs")).status_code == 200


async def test_a_key_sees_its_tenant_only(locked: Api) -> None:
    foreign = await locked.env.enqueue(tenant="other")
    for method, end in (("GET", ""), ("GET", "/attempts"), ("GET", "/result"), ("POST", "/cancel"), ("POST", "/retry")):
        response = await locked.client.request(method, f"/v1/jobs/{foreign}{end}")
        assert code_of(response) == (404, "JOB_NOT_FOUND")
    assert (await locked.client.get("/v1/jobs")).json()["items"] == []
    assert code_of(await locked.client.get("/v1/jobs?tenant=other")) == (403, "FORBIDDEN")
    await locked.env.driver.publish_job_types([job_type("shop.job", tenant={"template": "{shop}"})])
    refused = await locked.client.post("/v1/jobs", json={"name": "shop.job", "payload": {"shop": "other"}})
    assert code_of(refused) == (403, "FORBIDDEN")
    taken = await locked.client.post("/v1/jobs", json={"name": "shop.job", "payload": {"shop": "default"}})
    assert taken.status_code == 201


# --- the open service of `dev`


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "", "10.0.0.1"]
)
async def test_without_a_key_only_local_names_are_answered(api: Api, host: str) -> None:
    assert code_of(await api.client.get("/v1/jobs", headers={"Host": host})) == (403, "FORBIDDEN")


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:9", "127.1.2.3", "[::1]:8080", "LOCALHOST"])
async def test_local_names_are_answered(api: Api, host: str) -> None:
    assert (await api.client.get("/v1/jobs", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("headers", [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://localhost:9999"},
])  # fmt: skip
async def test_without_a_key_foreign_pages_change_nothing(api: Api, headers: dict[str, str]) -> None:
    job = await api.post()
    assert code_of(await api.client.post(f"/v1/jobs/{job['id']}/cancel", headers=headers)) == (403, "FORBIDDEN")
    assert (await api.get(job))["state"] == "ready"
    own = {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}
    assert (await api.client.post(f"/v1/jobs/{job['id']}/cancel", headers=own)).status_code == 200


async def test_no_origin_is_allowed_to_read(api: Api) -> None:
    for origin in ("https://evil.example", "null"):
        response = await api.client.get("/v1/jobs", headers={"Origin": origin})
        assert not [name for name in response.headers if name.startswith("access-control")]
        response = await api.client.options("/v1/jobs", headers={"Origin": origin})
        assert response.status_code == 405


# --- what every answer carries


async def test_every_answer_carries_the_security_headers(locked: Api) -> None:
    job = await locked.post()
    async with locked.client_with({}) as stranger:
        answers = [
            await locked.client.get("/v1/jobs"),
            await locked.client.get(job["links"]["self"]),
            await locked.client.get(job["links"]["self"], headers={"If-None-Match": "*"}),
            await locked.client.get("/metrics"),
            await locked.client.get("/openapi.json"),
            await locked.client.get("/livez"),
            await locked.client.get("/nothing"),
            await locked.client.delete("/v1/jobs"),
            await locked.client.post("/v1/jobs", content=b"NaN"),
            await locked.client.get("/v1/jobs?limit=x"),
            await locked.client.get("/%00"),
            await stranger.get("/v1/jobs"),
        ]
    for response in answers:
        for name, value in SECURITY_HEADERS:
            assert response.headers[name] == value
        assert response.headers["x-request-id"]
        assert "server" not in response.headers


async def test_the_callers_request_id_is_kept_when_it_is_one(api: Api) -> None:
    kept = await api.client.get("/nothing", headers={"X-Request-Id": "abc-1.2_3"})
    assert kept.headers["x-request-id"] == kept.json()["request_id"] == "abc-1.2_3"
    for odd in ("", "a b", "<script>", "x" * 65):
        response = await api.client.get("/livez", headers={"X-Request-Id": odd})
        assert re.fullmatch("[0-9a-f]{32}", response.headers["x-request-id"])


async def test_a_problem_names_the_trace(api: Api) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    response = await api.client.get("/nothing", headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"})
    assert response.json()["trace_id"] == trace_id
    assert response.json()["instance"] == "/nothing"


@pytest.mark.parametrize("path", ["/v1/jobs/%C3%A9%20%22%3C%3E%25", "/v1/a:b/(c);d=e,f", f"/{'%E2%82%AC' * 300}"])
async def test_a_problem_refers_to_its_request_by_a_uri(api: Api, path: str) -> None:
    said = (await api.client.get(path)).json()["instance"]
    assert re.fullmatch(r"(?:[A-Za-z0-9/:@!$&'()*+,;=._~-]|%[0-9A-F]{2})+", said)
    assert path.startswith(said)
    assert len(said) == min(len(path), 2_000 - (2_000 - 1) % 3)


# --- faults


def test_every_code_has_a_status() -> None:
    assert set(STATUS) == set(error_classes())


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (
            DriverUnavailable("postgres://root:hunter2@db.internal refused", fix="look at db.internal"),
            503,
            "DRIVER_UNAVAILABLE",
        ),
        (SchemaOutdated("db.internal is at 0001", fix="migrate db.internal"), 503, "SCHEMA_OUTDATED"),
        (RuntimeError("select secret from db.internal"), 500, "INTERNAL"),
    ],
)
async def test_a_fault_is_reported_and_says_nothing_of_the_inside(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    async def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    job = await api.post()
    for verb in ("enqueue", "describe", "list", "cancel", "retry", "queues", "workers"):
        monkeypatch.setattr(MemoryDriver, verb, fail)
    answers = [
        await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}}),
        await api.client.get("/v1/jobs"),
        await api.client.get(f"/v1/jobs/{job['id']}"),
        await api.client.get(f"/v1/jobs/{job['id']}/result"),
        await api.client.post(f"/v1/jobs/{job['id']}/cancel"),
        await api.client.post(f"/v1/jobs/{job['id']}/retry"),
        await api.client.get("/v1/queues"),
        await api.client.get("/v1/workers"),
    ]
    for response in answers:
        assert code_of(response) == (status, code)
        assert not re.search("internal|hunter2|select", response.text.replace("INTERNAL", ""))
        assert ("retry-after" in response.headers) == response.json()["retryable"]
    assert len(api.probe.of("request.failed", code=code)) == len(answers)


async def test_a_caller_that_went_away_is_not_a_fault(api: Api) -> None:
    async def gone() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def nobody(_message: object) -> None:
        raise AssertionError("there is nobody to answer")

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"10")]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/jobs", "raw_path": b"/v1/jobs", "query_string": b"",
        "headers": headers, "root_path": "", "scheme": "http", "http_version": "1.1", "server": None, "client": None,
    }  # fmt: skip
    await api.app(scope, gone, nobody)
    assert api.probe.of("request.failed") == []


async def test_addresses_carry_the_path_the_service_is_mounted_under(api: Api) -> None:
    transport = httpx.ASGITransport(app=api.app, root_path="/jobs-service")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post("/jobs-service/v1/jobs", json={"name": NAME, "payload": {}})
        assert response.status_code == 201
        assert response.headers["location"] == f"/jobs-service/v1/jobs/{response.json()['id']}"
        assert response.json()["links"]["result"].startswith("/jobs-service/v1/jobs/")
        assert (await client.get("/jobs-service/livez")).status_code == 200


async def test_what_is_logged_of_a_request_carries_its_id(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: MemoryDriver) -> None:
        seen.append(get_contextvars())
        raise RuntimeError("inside")

    seen: list[dict[str, object]] = []
    monkeypatch.setattr(MemoryDriver, "workers", fail)
    response = await api.client.get("/v1/workers")
    assert seen == [{"request_id": response.headers["x-request-id"]}]
    assert get_contextvars() == {}
