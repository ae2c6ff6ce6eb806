"""Whether a process sets up an SDK, and that it never replaces one that is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from app.jobs.stamp import working_tracer
from app.observability import tracing
from app.observability.tracing import Tracing, open_tracing

NAMED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """Give an SDK that somebody has set up."""
    own = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", own)
    yield own
    own.shutdown()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "shop"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        NAMED | {"OTEL_SDK_DISABLED": "TRUE"},
        NAMED | {"OTEL_TRACES_EXPORTER": "none"},
    ],
    ids=str,
)
def test_nothing_is_set_up_that_nobody_asked_for(environ: dict[str, str]) -> None:
    assert not open_tracing(environ).is_ours
    assert working_tracer() is None


def test_an_sdk_that_is_there_is_used_and_not_closed(provider: TracerProvider) -> None:
    opened = open_tracing(NAMED)
    assert trace.get_tracer_provider() is provider
    assert not opened.is_ours
    opened.close()
    assert working_tracer() is not None


def test_closing_waits_for_an_sdk_no_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_FLUSH_SECONDS", 0.01)
    never, begun = threading.Event(), threading.Event()

    class Stuck:
        def shutdown(self) -> None:
            begun.set()
            never.wait(60)

    Tracing(Stuck()).close()
    assert begun.wait(60)
    never.set()
