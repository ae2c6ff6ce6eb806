"""Traces of a whole process: sent to a collector over OTLP, and a collector that does not answer holds up no drain."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.processes import Fleet, client_of, eventually

pytestmark = pytest.mark.process

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector:
    """What an OTLP collector was sent; `hangs`: it takes requests and answers none."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.hangs = threading.Event()
        self.was_asked = threading.Event()
        if not hangs:
            self.hangs.set()

    def take(self, body: bytes) -> None:
        """Keep the spans of one request."""
        self.was_asked.set()
        self.hangs.wait(60)
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {at.value.string_value for at in each.resource.attributes if at.key == "service.name"}
            for scope in each.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> list[Any]:
        """Give the spans of a name."""
        return [span for span in self.spans if span.name == name]


@contextmanager
def collecting(collector: Collector) -> Iterator[str]:
    """Serve a collector and give its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            assert self.headers.get("content-encoding") is None
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        collector.hangs.set()
        server.shutdown()
        server.server_close()
        serving.join()


async def test_a_request_its_job_and_the_attempt_are_one_story_for_the_collector(fleet: Fleet) -> None:
    collector = Collector()
    with collecting(collector) as endpoint:
        service = await fleet.run(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_SERVICE_NAME="shop").ready()
        async with client_of(service) as client:
            made = await client.post(
                "/v1/jobs",
                json={"name": "faults.hold", "payload": {}},
                headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "prefer": "wait=20"},
            )
        assert made.json()["state"] == "done", made.text
        service.terminate()
        assert await service.gone() == 0
    assert collector.services == {"shop"}
    (request,), (created,) = collector.named("POST /v1/jobs"), collector.named("create faults.hold")
    assert request.trace_id.hex() == created.trace_id.hex() == TRACE
    assert request.parent_span_id.hex() == PARENT
    (attempt,) = collector.named("process faults.hold")
    assert attempt.trace_id.hex() != TRACE
    assert [link.span_id for link in attempt.links] == [created.span_id]
    assert not collector.named("GET /readyz"), "probes are not traced"


async def test_a_collector_that_never_answers_holds_up_no_drain(fleet: Fleet) -> None:
    collector = Collector(hangs=True)
    with collecting(collector) as endpoint:
        service = await fleet.run(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_BSP_SCHEDULE_DELAY="50").ready()
        async with client_of(service) as client:
            made = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}})
            assert made.status_code == 201
        await eventually(collector.was_asked.is_set, "the collector is asked")
        service.terminate()
        began = time.monotonic()
        assert await service.gone() == 0
        assert time.monotonic() - began < 15, "the exporter's own patience is longer"


async def test_an_endpoint_without_the_sdk_is_refused_with_the_repair(fleet: Fleet) -> None:
    hidden = fleet.folder / "sitecustomize.py"
    hidden.write_text("import sys\nsys.modules['opentelemetry.exporter.otlp.proto.http.trace_exporter'] = None\n")
    service = fleet.worker(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", PYTHONPATH=str(fleet.folder))
    assert await service.gone() == 64
    assert "pip install 'outlast[otel]'" in service.text
