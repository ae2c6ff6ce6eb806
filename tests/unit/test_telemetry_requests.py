"""What a process says of requests that fail: each fault of its own, and an outage once for many requests."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from app.domain.errors import Draining, DriverUnavailable, Internal, OutlastError, QueryTooSlow
from app.observability.logging import LogFormat, OutlastHandler, open_log
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.observability.throttle import Throttle

MANY = 1_000


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    level = root.level
    yield io.StringIO()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, OutlastHandler)]
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.mark.parametrize(
    ("error", "lines", "level"),
    [
        (DriverUnavailable("away", fix="wait"), 2, "error"),
        (Internal("ours", fix="report it"), MANY + 1, "error"),
        (QueryTooSlow("it is long", fix="narrow it"), 2, "warning"),
        (Draining("it leaves", fix="repeat it"), 2, "warning"),
    ],
)
def test_an_outage_is_said_once_every_few_seconds_and_a_fault_each_time(
    out: io.StringIO, error: OutlastError, lines: int, level: str
) -> None:
    clock = Clock()
    log = open_log(log_format=LogFormat.JSON, level="info", stream=out)
    telemetry = Telemetry(metrics=Metrics(), log=log, throttle=Throttle(interval_seconds=10, monotonic=clock))
    for _ in range(MANY):
        telemetry.request_failed(method="GET", path="/v1/jobs", code=error.code, error=error)
    clock.now = 10
    telemetry.request_failed(method="GET", path="/v1/jobs", code=error.code, error=error)
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(said) == lines
    assert {(line["event"], line["level"], line["code"]) for line in said} == {("request.failed", level, error.code)}
    assert all(("exception" in line) is (level == "error") for line in said)
    assert sum(1 + line.get("also", 0) for line in said) == MANY + 1, "none is forgotten"
