"""Spans of OpenTelemetry: an attempt, linked to what created its job, and the steps inside it.

They go to whatever SDK the process has. `open_tracing` sets one up by the standard's own environment variables; a
program that has set one up itself is left alone. Without either there are no spans and nothing is done for them. Like
the log, spans never see a payload, a result or the text of an exception.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..domain.errors import SettingsInvalid
from ..domain.job import ClaimedJob
from ..domain.outcome import OutcomeKind

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

NAME = "outlast"
_WISHED = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_FLUSH_SECONDS = 1.0
# How an attempt may end without anything having gone wrong in it.
_FINE = frozenset(
    {
        OutcomeKind.COMPLETED.value,
        OutcomeKind.SUSPENDED.value,
        OutcomeKind.INTERRUPTED.value,
        OutcomeKind.CANCELLED.value,
        "deleted",
    }
)


class AttemptSpan:
    """The span of one attempt. Its methods may be called from any thread."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def enter(self) -> None:
        """Make it the current span for as long as the current context lasts: a body's own."""
        from opentelemetry import context, trace  # noqa: PLC0415 - loaded where spans are made

        context.attach(trace.set_span_in_context(self._span))

    def ended(self, outcome: str, *, error: str | None = None) -> None:
        """End it with the attempt's outcome; `error` is the type of what went wrong. Later ends change nothing."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - as above

        self._span.set_attribute("outlast.outcome", outcome)
        if error is not None:
            self._span.set_attribute("error.type", error)
        if outcome not in _FINE:
            self._span.set_status(StatusCode.ERROR, outcome)
        self._span.end()


class Spans:
    """Makes the spans of a worker, over a tracer of the process's SDK."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def attempt(self, job: ClaimedJob) -> AttemptSpan:
        """Begin the span of an attempt: a trace of its own, linked to the span that its job was created in."""
        from opentelemetry import trace  # noqa: PLC0415 - as above
        from opentelemetry.context import Context  # noqa: PLC0415 - as above

        links = [] if (made := _context_of(job.traceparent)) is None else [trace.Link(made)]
        return AttemptSpan(
            self._tracer.start_span(
                f"process {job.name}",
                context=Context(),  # of the body, not of the worker's task that happens to claim it
                kind=trace.SpanKind.CONSUMER,
                links=links,
                attributes=_facts_of(job),
                record_exception=False,
                set_status_on_exception=False,
            )
        )

    @contextmanager
    def step(self, name: str, kind: str) -> Iterator[None]:
        """Put a step that is carried out, not read from its record, into a span of its own below the current one."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - as above

        facts = {"outlast.step.name": name, "outlast.step.kind": kind}
        with self._tracer.start_as_current_span(
            f"step {name}", attributes=facts, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


class Tracing:
    """What `open_tracing` has set up; `provider` is None where it has set up nothing."""

    def __init__(self, provider: Any = None) -> None:  # noqa: ANN401 - the SDK is an extra
        self._provider = provider

    @property
    def is_ours(self) -> bool:
        """Say whether there is something to close."""
        return self._provider is not None

    def close(self) -> None:
        """Send what has gathered, within a second: a collector that does not answer must not hold a drain up."""
        if self._provider is None:
            return
        # A thread of its own that nobody waits for: the exporter's own patience is longer than a drain's.
        sender = threading.Thread(target=self._provider.shutdown, name="outlast.tracing", daemon=True)
        sender.start()
        sender.join(_FLUSH_SECONDS)


def open_tracing(environ: Mapping[str, str] = os.environ) -> Tracing:
    """Set up an SDK where the environment names an OTLP endpoint and nobody else has: traces over HTTP, in batches.

    Read are the standard's own variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` (else `outlast`),
    `OTEL_TRACES_SAMPLER` and so on; `OTEL_SDK_DISABLED` and `OTEL_TRACES_EXPORTER=none` switch it off.

    Raises:
        SettingsInvalid: an endpoint is named and the SDK is not installed.
    """
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    named = next((name for name in _WISHED if environ.get(name)), None)
    if named is None or is_off:
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise SettingsInvalid(
            f"{named} is set and the OpenTelemetry SDK is not installed",
            fix="pip install 'outlast[otel]', or set OTEL_SDK_DISABLED=true",
        ) from exc
    from opentelemetry import trace  # noqa: PLC0415 - as above

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return Tracing()  # whoever set one up ends it
    name = environ.get("OTEL_SERVICE_NAME") or NAME
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return Tracing(provider)


def _facts_of(job: ClaimedJob) -> dict[str, str | int]:
    return {
        "messaging.system": NAME,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.token.job_id),
        "outlast.job.name": job.name,
        "outlast.job.attempt": job.counters.attempt,
        "outlast.job.claim_no": job.token.claim_no,
        "outlast.run.id": str(job.run_id),
    }


def _context_of(traceparent: str | None) -> Any:  # noqa: ANN401 - a SpanContext, of a library loaded above
    """Give the span that a `traceparent` names; None where it names none."""
    if traceparent is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - as above
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - as above

    read = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    found = trace.get_current_span(read).get_span_context()
    return found if found.is_valid else None
