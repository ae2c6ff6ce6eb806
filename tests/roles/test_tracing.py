"""Spans, collected by a real SDK: what created a job, its attempts and their steps, and how they hang together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.domain.job import JobId
from app.domain.retry import RetryPolicy
from app.jobs.client import Client
from app.jobs.context import JobContext
from app.jobs.exits import Snooze
from app.jobs.handle import JobHandle, job
from app.jobs.request import EnqueueRequest
from tests.roles.harness import Bench, working

NAPPING = "process napping"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collected:
    """The spans of one test."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        """Give the ended spans of a name, in the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Give the only one."""
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    """Give what an SDK collects; the process has none before and after."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Collected(exporter)
    provider.shutdown()


@job("traced")
async def traced(ctx: JobContext) -> int:
    one = await ctx.step.run("load", _inner)
    return one + await ctx.step.run("count", _plain)


@job("failing", retry=RetryPolicy(max_attempts=1))
async def failing(ctx: JobContext) -> None:
    await ctx.step.run("break", _break)


@job("napping")
async def napping(ctx: JobContext) -> None:
    if ctx.claim_no == 1:
        raise Snooze(timedelta(milliseconds=1))


@job("twice", retry=RetryPolicy(max_attempts=2, backoff=timedelta(milliseconds=1)))
async def twice(ctx: JobContext) -> None:
    await ctx.step.run("once", _inner)
    if ctx.attempt == 1:
        raise ValueError("again")


@job("threaded")
def threaded(ctx: JobContext) -> None:
    with trace.get_tracer("mine").start_as_current_span("in a thread"):
        pass


async def _inner() -> int:
    with trace.get_tracer("mine").start_as_current_span("mine"):
        return 1


def _plain() -> int:
    with trace.get_tracer("mine").start_as_current_span("mine too"):
        return 2


async def _break() -> None:
    raise ValueError("the secret")


async def _enqueued(bench: Bench, handle: JobHandle[Any, Any], traceparent: str | None = None) -> JobId:
    request = EnqueueRequest(name=handle.name, payload_text="{}", traceparent=traceparent)
    return (await Client(bench.driver).enqueue(handle.job_type, request)).id


async def test_a_job_is_created_in_the_callers_trace_and_its_attempt_is_linked_to_that(spans: Collected) -> None:
    async with working(traced) as bench:
        with trace.get_tracer("caller").start_as_current_span("caller") as caller:
            job_id = await _enqueued(bench, traced, TRACEPARENT)
        await bench.until("attempt.completed", job_id)
        stored = (await bench.view(job_id)).traceparent
    created, attempt = spans.one("create traced"), spans.one("process traced")
    assert created.kind is SpanKind.PRODUCER
    assert created.parent == caller.get_span_context()
    assert stored is not None
    assert stored.split("-")[:3] == ["00", f"{created.context.trace_id:032x}", f"{created.context.span_id:016x}"]
    assert attempt.kind is SpanKind.CONSUMER
    assert attempt.parent is None
    assert attempt.context.trace_id != created.context.trace_id
    assert [(link.context.trace_id, link.context.span_id) for link in attempt.links] == [
        (created.context.trace_id, created.context.span_id)
    ]
    assert attempt.attributes is not None
    assert {name: attempt.attributes[name] for name in ("messaging.message.id", "outlast.outcome")} == {
        "messaging.message.id": str(job_id),
        "outlast.outcome": "completed",
    }
    assert attempt.status.status_code is StatusCode.UNSET


async def test_steps_are_spans_of_their_attempt_and_what_they_do_is_inside(spans: Collected) -> None:
    async with working(traced) as bench:
        await bench.until("attempt.completed", await _enqueued(bench, traced))
    attempt = spans.one("process traced").context
    for step, inner in (("step load", "mine"), ("step count", "mine too")):
        assert spans.one(step).parent == attempt
        assert spans.one(inner).parent == spans.one(step).context


async def test_a_body_in_a_thread_is_inside_its_attempt(spans: Collected) -> None:
    async with working(threaded) as bench:
        await bench.until("attempt.completed", await _enqueued(bench, threaded))
    assert spans.one("in a thread").parent == spans.one("process threaded").context


async def test_without_a_span_of_the_callers_a_job_goes_on_with_the_trace_it_came_with(spans: Collected) -> None:
    async with working(threaded) as bench:
        await bench.until("attempt.completed", await _enqueued(bench, threaded, TRACEPARENT))
    parent = spans.one("create threaded").parent
    assert parent is not None
    assert (f"{parent.trace_id:032x}", f"{parent.span_id:016x}") == tuple(TRACEPARENT.split("-")[1:3])


async def test_what_goes_wrong_is_said_by_its_type_and_never_by_its_text(spans: Collected) -> None:
    async with working(failing) as bench:
        await bench.until("attempt.dead", await _enqueued(bench, failing))
    step, attempt = spans.one("step break"), spans.one("process failing")
    for span in (step, attempt):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes is not None
        assert span.attributes["error.type"] == "ValueError"
    assert attempt.attributes is not None
    assert attempt.attributes["outlast.outcome"] == "dead_lettered"
    assert "secret" not in f"{step.to_json()}{attempt.to_json()}"


async def test_each_attempt_is_a_span_and_one_that_waits_is_none_that_failed(spans: Collected) -> None:
    async with working(napping) as bench:
        await bench.until("attempt.completed", await _enqueued(bench, napping))
    told = [(dict(span.attributes or {})["outlast.outcome"], span.status.status_code) for span in spans.named(NAPPING)]
    assert told == [("suspended", StatusCode.UNSET), ("completed", StatusCode.UNSET)]


async def test_a_step_that_is_read_from_its_record_is_no_span(spans: Collected) -> None:
    async with working(twice) as bench:
        await bench.until("attempt.completed", await _enqueued(bench, twice))
    assert len(spans.named("process twice")) == 2
    assert len(spans.named("step once")) == 1


async def test_without_an_sdk_a_job_keeps_the_trace_it_came_with() -> None:
    async with working(threaded) as bench:
        job_id = await _enqueued(bench, threaded, TRACEPARENT)
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).traceparent == TRACEPARENT
