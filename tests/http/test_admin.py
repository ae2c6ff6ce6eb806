"""Who is answered on the admin listener, and how it refuses."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from typing import Any

import httpx
import pytest

from app.control.drain import DrainControl
from app.domain.errors import Forbidden
from app.http.admin import AdminListener
from app.http.headers import SECURITY_HEADERS
from app.http.visitors import check_host, own_names
from app.lifecycle.shutdown import Shutdown
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from tests.http.api import code_of
from tests.http.test_openapi import DOCUMENT
from tests.http.test_probes import PROBES, listener

PATHS = ("/livez", "/startupz", "/readyz", "/metrics", "/version", "/v1/drain")
OWN = own_names("worker.internal")


@pytest.fixture
def leaving() -> Shutdown:
    return Shutdown(drain_seconds=25, telemetry=Telemetry(metrics=Metrics()))


@pytest.fixture
def served(leaving: Shutdown) -> Iterator[AdminListener]:
    made = listener(replace(PROBES, drain=DrainControl(status=leaving.status, begin=leaving.request)))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def client(served: AdminListener) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}") as opened:
        yield opened


def headers_of(*hosts: str) -> Message:
    made = Message()
    for host in hosts:
        made["Host"] = host
    return made


def is_answered(peer: str, *hosts: str) -> bool:
    try:
        check_host(peer, headers_of(*hosts), OWN)
    except Forbidden:
        return False
    return True


# --- under which names


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example:8081", "evil", "[evil]", "",
    "evil@127.0.0.1", "127.0.0.1@evil", "127.0.0.1:8081:1", "[::1", "::1", "[127.0.0.1]", "127.1", "2130706433",
    "localhost:x", "localhost,evil", "xn--localhost-", "worker.internal.evil.example",
])  # fmt: skip
def test_a_page_whose_name_was_rebound_to_this_machine_is_not_answered(host: str) -> None:
    for peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert not is_answered(peer, host)
    assert not is_answered("127.0.0.1", "localhost", host)


@pytest.mark.parametrize("host", [
    "127.0.0.1", "127.0.0.1:8081", "10.1.2.3:8081", "[::1]:8081", "[::1]", "[fe80::1]:1", "localhost", "LocalHost:8081",
    "localhost.:8081", "worker.internal:8081", socket.gethostname(), f"{socket.gethostname().upper()}:8081",
])  # fmt: skip
def test_programs_on_this_machine_are_answered(host: str) -> None:
    for peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert is_answered(peer, host)


def test_a_client_without_a_host_is_no_browser() -> None:
    assert is_answered("127.0.0.1")


@pytest.mark.parametrize("peer", ["10.1.2.3", "192.168.0.7", "fe80::1%eth0", "2001:db8::1", "127.0.0.6"])
def test_others_ask_under_any_name(peer: str) -> None:
    """Scrapers ask for a service's name, probes for a pod's address; a mesh's sidecar hands both on from 127.0.0.6."""
    for host in ("worker.ns.svc:9090", "10.1.2.3:8081", "localhost:8081"):
        assert is_answered(peer, host)


@pytest.mark.parametrize("path", [*PATHS, "/v1/drain?scope=fleet", "/nothing"])
def test_nothing_is_read_or_done_under_a_foreign_name(path: str, client: httpx.Client, leaving: Shutdown) -> None:
    for method in ("GET", "HEAD", "POST", "PUT"):
        refused = client.request(method, path, headers={"Host": "rebound.example:8081"})
        assert refused.status_code == 403
        if method != "HEAD":
            assert code_of(refused) == (403, "FORBIDDEN")
    assert not leaving.is_draining


def test_a_scrape_through_a_sidecar_is_answered_under_the_name_of_a_service(served: AdminListener) -> None:
    transport = httpx.HTTPTransport(local_address="127.0.0.6")
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", transport=transport) as sidecar:
        scraped = sidecar.get("/metrics", headers={"Host": "worker.ns.svc:9090"})
    assert (scraped.status_code, scraped.text) == (200, "outlast_loop_lag_seconds 0\n")


# --- acting


@pytest.mark.parametrize("media_type", [
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "text/plain;charset=UTF-8",
    "", "application/json-seq", "text/html, application/json",
])  # fmt: skip
def test_what_a_form_sends_begins_no_drain(media_type: str, client: httpx.Client, leaving: Shutdown) -> None:
    refused = client.post("/v1/drain", content=b"{}", headers={"Content-Type": media_type})
    assert code_of(refused) == (415, "MEDIA_UNSUPPORTED")
    assert not leaving.is_draining


@pytest.mark.parametrize(
    "header", [("Origin", "http://127.0.0.1:8081"), ("Origin", "null"), ("Sec-Fetch-Site", "none")]
)
def test_a_page_begins_no_drain(header: tuple[str, str], client: httpx.Client, leaving: Shutdown) -> None:
    assert code_of(client.post("/v1/drain", headers=[header])) == (403, "FORBIDDEN")
    assert not leaving.is_draining


PROGRAMS: list[dict[str, Any]] = [{}, {"json": {}}, {"content": b"{}", "headers": {"Content-Type": "APPLICATION/JSON"}}]


@pytest.mark.parametrize("options", PROGRAMS)
def test_a_program_on_this_machine_begins_it(options: dict[str, Any], client: httpx.Client, leaving: Shutdown) -> None:
    assert client.request("POST", "/v1/drain", **options).status_code == 202
    assert leaving.is_draining


def test_what_follows_a_body_is_no_request_of_its_own(served: AdminListener, leaving: Shutdown) -> None:
    """A proxy that hands a body on would otherwise speak for somebody else without its own headers."""
    inner = b"POST /v1/drain HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for framing in (b"Content-Length: %d" % len(inner), b"Transfer-Encoding: chunked"):
        with socket.create_connection(("127.0.0.1", served.port)) as raw:
            raw.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nVia: 1.1 proxy\r\n%s\r\n\r\n%s" % (framing, inner))
            answered = raw.makefile("rb").read()
        assert answered.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close" in answered
    assert not leaving.is_draining


# --- refusing


@pytest.mark.parametrize("path", PATHS)
def test_a_method_that_a_path_does_not_have_is_answered_with_all_that_it_has(path: str, client: httpx.Client) -> None:
    """The admin listener has the operations of the API at these paths, and answers HEAD besides."""
    allowed = {method.upper() for method in DOCUMENT["paths"][path]} | {"HEAD"}
    for method in sorted({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"} - allowed):
        refused = client.request(method, path, content=b"{}")
        assert code_of(refused) == (405, "REQUEST_INVALID"), method
        assert refused.headers["allow"] == ", ".join(sorted(allowed))
        assert refused.json()["fix"] == f"use {', '.join(sorted(allowed))}"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/v1/jobs", "/v1/drain/", "/livez/x"])
def test_what_is_not_there_is_not_found(path: str, method: str, client: httpx.Client) -> None:
    refused = client.request(method, path)
    assert code_of(refused) == (404, "NOT_FOUND")
    assert refused.json()["instance"] == path
    assert {name: refused.headers[name] for name, _ in SECURITY_HEADERS} == dict(SECURITY_HEADERS)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /livez\r\nx HTTP/1.1\r\n\r\n", b""),
        (b"GET /livez HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
    ],
)
def test_what_cannot_be_read_is_a_problem_too(raw: bytes, status: bytes, served: AdminListener) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(raw)
        answered = connection.makefile("rb").read()
    assert b"<html" not in answered.lower()
    if status:
        assert status in answered.partition(b"\r\n")[0]
        assert b'"code":"REQUEST_INVALID"' in answered


def test_a_connection_serves_one_question_after_another(served: AdminListener) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    for path, status in (("/livez", 200), ("/nothing", 404), ("/version", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.will_close) == (status, False)
    connection.close()


def test_a_store_that_does_not_answer_is_a_problem(client: httpx.Client) -> None:
    away = listener(replace(PROBES, fleet=lambda: None))
    away.start()
    try:
        refused = httpx.get(f"http://127.0.0.1:{away.port}/v1/drain?scope=fleet")
    finally:
        away.stop()
    assert code_of(refused) == (503, "DRIVER_UNAVAILABLE")
    assert "own admin listener" in refused.json()["fix"]
