"""The trace that a job is stamped with: one span that says "created", where the process that enqueues traces.

Whoever runs the job links to it, so that a trace leads from the request to its jobs. Where no OpenTelemetry SDK is at
work the request's own `traceparent` is kept as it came. Nothing is imported for it, and nothing recorded without one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

NAME = "outlast"
SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
QUEUE = "messaging.destination.name"
MESSAGE = "messaging.message.id"
JOB = "outlast.job.name"


def working_tracer() -> Tracer | None:
    """Give this process's tracer where somebody has set up an SDK; None: spans would go nowhere."""
    api: Any = sys.modules.get("opentelemetry.trace")  # whoever has set one up has imported it
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    tracer: Tracer = provider.get_tracer(NAME)
    return tracer


def stamped(job: str, queue: str, job_id: object, traceparent: str | None) -> str | None:
    """Give the `traceparent` of a job about to be stored: of a span of its own, in the caller's trace, or as it came.

    The span is one of the semantic conventions for messaging, kind producer, and says nothing of the payload.
    """
    tracer = working_tracer()
    if tracer is None:
        return traceparent
    from opentelemetry import trace  # noqa: PLC0415 - loaded already, by whoever set up the SDK
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - as above

    written = TraceContextTextMapPropagator()
    here = trace.get_current_span().get_span_context().is_valid
    parent = None if here or traceparent is None else written.extract({"traceparent": traceparent})
    facts = {SYSTEM: NAME, OPERATION: "create", OPERATION_TYPE: "create", QUEUE: queue, MESSAGE: str(job_id), JOB: job}
    span = tracer.start_span(f"create {job}", context=parent, kind=trace.SpanKind.PRODUCER, attributes=facts)
    span.end()
    carrier: dict[str, str] = {}
    written.inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent", traceparent)
