"""What is logged: named events, one record each, escaped and bounded, and never a payload or an exception's text."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.job import ClaimedJob, ClaimToken, Counters, JobId, RunId, WorkerId
from app.domain.outcome import (
    KIND_OF,
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Held,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    SettleAnswer,
    Snoozed,
)
from app.domain.snapshot import Expired, Reaped
from app.domain.state import DeadReason
from app.observability.logging import LogFormat, OutlastHandler, escaped, flush_log, open_log
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.observability.throttle import Throttle

CANARY = "CANARY-7b1f"
NASTY = "x\r\n\x1b[31mred\x00\u2028\u202e{jndi}\ud800"
AT = datetime(2026, 1, 1, tzinfo=UTC)
BOOM = ErrorInfo(type="ValueError", message=CANARY, code="PAYLOAD_INVALID", traceback=CANARY)


def claimed(**fields: Any) -> ClaimedJob:
    job_id = JobId(UUID(int=7))
    defaults: dict[str, Any] = {
        "token": ClaimToken(job_id=job_id, claim_no=1, worker_id=WorkerId(3), fence=1),
        "run_id": RunId(job_id),
        "name": "mail.send",
        "queue": "mail",
        "priority": 5,
        "tenant": "default",
        "payload": f'"{CANARY}"',
        "counters": Counters(attempt=1, claim_no=1),
        "max_attempts": 3,
        "max_crashes": 3,
        "created_at": AT,
        "claimed_at": AT + timedelta(seconds=2),
    }
    return ClaimedJob(**{**defaults, **fields})


def taken(**fields: Any) -> Reaped:
    defaults: dict[str, Any] = {
        "job_id": JobId(UUID(int=1)),
        "name": "mail.send",
        "queue": "mail",
        "claim_no": 4,
        "worker_id": WorkerId(1),
        "outcome": OutcomeKind.CRASHED,
        "cause": "worker_vanished",
        "attempt": 2,
        "lasted": timedelta(seconds=1.5),
        "is_dead": False,
    }
    return Reaped(**{**defaults, **fields})


@pytest.fixture
def log_lines() -> Iterator[Any]:
    """Opens the process's log into memory and puts the root logger back."""
    root = logging.getLogger()
    level = root.level

    def opened(log_format: LogFormat = LogFormat.JSON) -> tuple[Any, io.StringIO]:
        stream = io.StringIO()
        return open_log(log_format=log_format, level="debug", stream=stream), stream

    yield opened
    for handler in [handler for handler in root.handlers if isinstance(handler, OutlastHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)


OUTCOMES: dict[str, Outcome] = {
    "attempt.completed": Completed(result=f'"{CANARY}"', late=True),
    "attempt.suspended": Snoozed(delay=timedelta(seconds=1)),
    "attempt.retried": Retried(error=BOOM, delay=timedelta(seconds=1)),
    "attempt.dead": DeadLettered(error=BOOM, reason=DeadReason.TERMINAL),
    "attempt.interrupted": Interrupted(cause="drain", error=BOOM),
    "attempt.cancelled": Cancelled(reason="because", error=BOOM),
    "attempt.held": Held(reason="code", error=BOOM),
}
COUNTED = {"attempt.completed": "ok", "attempt.retried": "failed", "attempt.dead": "dead"}


@pytest.mark.parametrize("event", OUTCOMES)
def test_every_outcome_has_its_event_and_counts_as_its_label_says(event: str, log_lines: Any) -> None:
    log, stream = log_lines()
    metrics = Metrics()
    Telemetry(metrics=metrics, log=log).attempt_settled(claimed(), OUTCOMES[event], 0.25)
    record = json.loads(stream.getvalue())
    assert record["event"] == event
    assert record["outcome"] == KIND_OF[type(OUTCOMES[event])].value
    assert (record["job_id"], record["job"], record["attempt"]) == (str(UUID(int=7)), "mail.send", 1)
    assert record["duration_ms"] == 250
    assert CANARY not in stream.getvalue()
    for label in ("ok", "failed", "dead"):
        value = metrics.registry.get_sample_value(
            "outlast_jobs_total", {"job": "mail.send", "queue": "mail", "outcome": label}
        )
        assert (value or 0) == (1 if COUNTED.get(event) == label else 0)


def test_a_deploy_an_outage_and_a_crash_wave_move_no_failure_ratio() -> None:
    metrics = Metrics()
    telemetry = Telemetry(metrics=metrics)
    for outcome in (OutcomeKind.CRASHED, OutcomeKind.LEASE_LOST, OutcomeKind.INTERRUPTED):
        telemetry.claims_taken_over([taken(outcome=outcome, is_dead=outcome is OutcomeKind.CRASHED)])
    telemetry.attempt_settled(claimed(), Interrupted(cause="drain"), 1)
    get = metrics.registry.get_sample_value
    labels = {"job": "mail.send", "queue": "mail"}
    assert get("outlast_attempts_crashed_total", labels) == 1
    assert get("outlast_attempts_lease_lost_total", labels) == 1
    assert get("outlast_attempts_interrupted_total", labels) == 2
    assert b"outlast_jobs_total{" not in metrics.render()


def test_many_interrupts_of_one_job_are_a_warning(log_lines: Any) -> None:
    log, stream = log_lines()
    telemetry = Telemetry(metrics=Metrics(), log=log)
    for interrupts in (8, 9):
        counters = Counters(attempt=1, claim_no=interrupts + 1, interrupts=interrupts)
        telemetry.attempt_settled(claimed(counters=counters), Interrupted(cause="drain"), 1)
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["level"], one.get("interrupts")) for one in records] == [("info", None), ("warning", 10)]


def test_the_queue_wait_counts_from_when_the_job_was_due() -> None:
    metrics = Metrics()
    telemetry = Telemetry(metrics=metrics)
    telemetry.attempt_started(claimed())
    telemetry.attempt_started(claimed(run_at=AT + timedelta(seconds=1.5)))
    telemetry.attempt_started(claimed(counters=Counters(attempt=2, claim_no=2)))
    labels = {"job": "mail.send", "queue": "mail"}
    assert metrics.registry.get_sample_value("outlast_queue_wait_seconds_sum", labels) == 2.5
    assert metrics.registry.get_sample_value("outlast_queue_wait_seconds_count", labels) == 2


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_odd_text_stays_one_record(log_format: LogFormat, log_lines: Any) -> None:
    log, stream = log_lines(log_format)
    log.info("event.name", value=NASTY, **{"key\n": NASTY})
    logging.getLogger("uvicorn.error").warning("foreign %s", NASTY[:-1])  # pytest keeps a copy it must encode
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "\x1b" not in line
        assert "\u202e" not in line
        line.encode()
    assert "foreign" in lines[1]


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_an_exception_is_logged_by_kind_and_place_without_its_text(log_format: LogFormat, log_lines: Any) -> None:
    log, stream = log_lines(log_format)

    def fails() -> None:
        raise ValueError(CANARY)

    try:
        fails()
    except ValueError as error:
        Telemetry(metrics=Metrics(), log=log).role_failed("worker", error)
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
    text = stream.getvalue()
    assert CANARY not in text
    assert text.count("ValueError") >= 2
    assert "in fails" in text


def test_what_is_said_has_bounds(log_lines: Any) -> None:
    log, stream = log_lines()
    log.info("event.name", value="y" * 1_000_000, many=["z" * 5_000])
    assert len(stream.getvalue()) < 10_000


def test_setting_up_twice_prints_once(log_lines: Any) -> None:
    log_lines()
    log, stream = log_lines()
    log.info("event.name")
    flush_log()
    assert stream.getvalue().count("event.name") == 1


@pytest.mark.parametrize("level", ["info", "WARNING"])
def test_the_level_is_the_least_that_is_written(level: str, log_lines: Any) -> None:
    log_lines()
    stream = io.StringIO()
    log = open_log(log_format=LogFormat.JSON, level=level, stream=stream)
    log.debug("quiet")
    logging.getLogger("other").debug("quiet")
    log.error("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_escaped_text_shows_what_was_there() -> None:
    assert escaped("a\x00b\x1b[1m\u2028") == r"a\x00b\x1b[1m\u2028"
    assert escaped("plain ünïcode 漢字") == "plain ünïcode 漢字"


def test_a_lasting_failure_is_one_line_an_interval_that_counts_the_rest(log_lines: Any) -> None:
    log, stream = log_lines()
    now = [0.0]
    telemetry = Telemetry(metrics=Metrics(), log=log, throttle=Throttle(interval_seconds=5, monotonic=lambda: now[0]))
    probe = Probe(telemetry)
    for _ in range(10):
        telemetry.heartbeat_failed(OSError(CANARY))
    telemetry.claim_failed(OSError())
    now[0] = 5.0
    telemetry.heartbeat_failed(OSError())
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one["also"]) for one in records] == [
        ("heartbeat.failed", 0),
        ("claim.failed", 0),
        ("heartbeat.failed", 9),
    ]
    assert len(probe.of("heartbeat.failed")) == 11


def test_a_superseded_attempt_is_quiet_and_a_lost_lease_is_not(log_lines: Any) -> None:
    log, stream = log_lines()
    telemetry = Telemetry(metrics=Metrics(), log=log)
    telemetry.attempt_superseded(claimed(), SettleAnswer.CANCELLED, 0.5)
    telemetry.lease_lost(claimed(), 0.5)
    levels = [json.loads(line)["level"] for line in stream.getvalue().splitlines()]
    assert levels == ["debug", "warning"]


async def test_a_probe_hears_from_any_thread_and_stops_when_detached() -> None:
    telemetry = Telemetry(metrics=Metrics())
    probe = Probe(telemetry)
    waiting = asyncio.ensure_future(probe.wait("heartbeat.failed", error="OSError"))
    await asyncio.sleep(0)
    await asyncio.get_running_loop().run_in_executor(None, telemetry.heartbeat_failed, OSError())
    assert (await waiting).facts["error"] == "OSError"
    probe.detach()
    telemetry.listener_lost()
    assert probe.names() == ["heartbeat.failed"]


async def test_a_probe_that_waits_in_vain_says_what_it_heard() -> None:
    telemetry = Telemetry(metrics=Metrics())
    probe = Probe(telemetry)
    telemetry.listener_lost()
    with pytest.raises(TimeoutError, match=r"listener\.lost"):
        await probe.wait("never", within=0.01)


@pytest.mark.parametrize(
    ("outcome", "cause", "is_dead", "level", "said"),
    [
        (OutcomeKind.CRASHED, "worker_vanished", False, "warning", {"is_dead": False}),
        (OutcomeKind.CRASHED, "worker_vanished", True, "error", {"is_dead": True, "reason": "crashed_too_often"}),
        (OutcomeKind.LEASE_LOST, "lease_lost", False, "warning", {}),
        (OutcomeKind.INTERRUPTED, "abandoned", False, "info", {}),
        (OutcomeKind.INTERRUPTED, "worker_closed", False, "info", {}),
    ],
)
def test_what_was_taken_over_says_how_it_ended_and_why(
    outcome: OutcomeKind, cause: str, is_dead: bool, level: str, said: dict[str, object], log_lines: Any
) -> None:
    log, stream = log_lines()
    Telemetry(metrics=Metrics(), log=log).claims_taken_over([taken(outcome=outcome, cause=cause, is_dead=is_dead)])
    record = json.loads(stream.getvalue())
    assert (record["event"], record["level"]) == (f"attempt.{outcome.value}", level)
    assert (record["outcome"], record["cause"]) == (outcome.value, cause)
    assert (record["attempt"], record["claim_no"], record["duration_ms"], record["of_worker"]) == (2, 4, 1500, 1)
    assert said.items() <= record.items()
    assert ("reason" in record) is is_dead


def test_attempts_that_others_closed_say_how_they_ended_and_how_long_they_ran(log_lines: Any) -> None:
    log, stream = log_lines()
    telemetry = Telemetry(metrics=Metrics(), log=log)
    telemetry.attempt_superseded(claimed(), SettleAnswer.CANCELLED, 0.25)
    telemetry.attempt_superseded(claimed(), SettleAnswer.DELETED, None)
    telemetry.lease_lost(claimed(), 0.25)
    telemetry.attempt_abandoned(claimed(), "retried", 0.25, reason="timeout")
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one["outcome"], one["attempt"], one.get("duration_ms")) for one in records] == [
        ("attempt.superseded", "cancelled", 1, 250),
        ("attempt.superseded", "deleted", 1, None),
        ("lease.lost", "lease_lost", 1, 250),
        ("attempt.abandoned", "retried", 1, 250),
    ]


@pytest.mark.parametrize("reason", [DeadReason.EXPIRED, DeadReason.DEADLINE])
def test_a_job_that_a_sweep_ended_is_said_and_counts_as_dead(reason: DeadReason, log_lines: Any) -> None:
    log, stream = log_lines()
    metrics = Metrics()
    expired = Expired(job_id=JobId(UUID(int=1)), name="mail.send", queue="mail", reason=reason)
    Telemetry(metrics=metrics, log=log).jobs_expired([expired])
    record = json.loads(stream.getvalue())
    assert (record["event"], record["level"], record["outcome"]) == ("job.dead", "error", "dead_lettered")
    assert (record["job_id"], record["reason"]) == (str(UUID(int=1)), reason.value)
    labels = {"job": "mail.send", "queue": "mail", "outcome": "dead"}
    assert metrics.registry.get_sample_value("outlast_jobs_total", labels) == 1


def test_calls_to_the_store_are_told_apart_by_their_verb(log_lines: Any) -> None:
    log, stream = log_lines()
    telemetry = Telemetry(metrics=Metrics(), log=log)
    for verb in ("reap", "expire", "reap"):
        telemetry.store_call_failed(verb, OSError(CANARY))
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one["verb"], one["error"]) for one in records] == [
        ("store.call_failed", "reap", "OSError"),
        ("store.call_failed", "expire", "OSError"),
    ]


def test_a_store_that_keeps_nothing_is_said_with_the_repair(log_lines: Any) -> None:
    log, stream = log_lines()
    Telemetry(metrics=Metrics(), log=log).store_is_volatile("memory")
    record = json.loads(stream.getvalue())
    assert (record["event"], record["level"], record["driver"]) == ("store.volatile", "warning", "memory")
    assert "OUTLAST_DATABASE_URL" in record["fix"]
