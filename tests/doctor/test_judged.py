"""What no server of a test can be brought to, judged from facts alone."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from app.control.doctor.checks import CHECKS
from app.control.doctor.finding import Examined, Finding, Level, Surroundings
from app.control.doctor.server_checks import _limits
from app.domain.errors import DriverUnavailable
from app.domain.vitals import Holder, HolderKind, ServerVitals, Vitals
from app.drivers.postgres.connect import COMMAND_TIMEOUT, _session_settings
from tests.doctor.clinic import clock

WELL = ServerVitals(
    version=180_006,
    database="shop",
    role="jobs",
    schema="outlast",
    revision="0012",
    required="0012",
    is_standby=False,
    is_read_only=False,
    is_clock_true=True,
    settings={"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on"},
    denied=(),
    available=97,
    connections=5,
    pooled=None,
)
SURROUNDINGS = Surroundings(pool_size=4, drain=timedelta(seconds=25))


def found(code: str, server: ServerVitals = WELL, **examined: object) -> Finding:
    (check,) = (check for check in CHECKS if check.code == code)
    now = clock()
    vitals = Vitals(store="postgres", is_durable=True, at=now, server=server)
    facts = Examined(now=now, took=timedelta(), surroundings=SURROUNDINGS, vitals=vitals)
    return check.judge(replace(facts, **examined))  # type: ignore[arg-type]  # fields of it


@pytest.mark.parametrize(
    ("code", "facts", "said"),
    [
        ("server_version", {"version": 140_010}, "PostgreSQL 14.10"),
        ("writable", {"is_standby": True}, "standby"),
        ("durability", {"settings": {"synchronous_commit": "off"}}, "synchronous_commit"),
        ("vacuum", {"settings": {"track_counts": "off"}}, "track_counts"),
    ],
)
def test_what_breaks_a_promise_fails(code: str, facts: dict[str, object], said: str) -> None:
    finding = found(code, replace(WELL, **facts))  # type: ignore[arg-type]  # fields of it
    assert (finding.level, said in finding.text, bool(finding.fix)) == (Level.FAIL, True, True)
    assert found(code).level is Level.OK


def test_a_standby_that_is_far_behind_holds_vacuum_back_by_its_slot() -> None:
    holder = Holder(kind=HolderKind.SLOT, name="standby'1", application=None, age=None, xids=2_000_000)
    finding = found("old_snapshots", replace(WELL, holders=(holder,)))
    assert (finding.level, "2,000,000 transactions old" in finding.text) == (Level.WARN, True)
    assert finding.commands == ("select pg_drop_replication_slot('standby''1')",)
    young = replace(holder, xids=10)
    assert found("old_snapshots", replace(WELL, holders=(young,))).level is Level.OK


def test_an_outbox_in_another_database_that_is_away_fails_alone() -> None:
    error = DriverUnavailable("the other database does not answer", fix="look at OUTLAST_OUTBOX_URL")
    finding = found("outbox", outbox_error=error)
    assert (finding.level, finding.text, finding.fix) == (Level.FAIL, error.cause, error.fix)
    assert found("database").level is Level.OK


def test_connections_suffice_to_the_last_one() -> None:
    assert found("connections", replace(WELL, available=7)).level is Level.OK
    assert found("connections", replace(WELL, available=6)).level is Level.FAIL


@pytest.mark.parametrize(
    ("seconds", "idle", "lock"), [(30, "10s", "5s"), (10, "10s", "5s"), (6, "6s", "3s"), (3, "3s", "1500ms")]
)
def test_limits_for_a_role_behind_a_pooler_fit_the_lease(seconds: float, idle: str, lock: str) -> None:
    missing = ("idle_in_transaction_session_timeout", "jit", "lock_timeout", "statement_timeout")
    around = replace(SURROUNDINGS, lease=timedelta(seconds=seconds))
    finding = found("session_settings", replace(WELL, missing=missing), surroundings=around)
    assert [command.partition(" set ")[2] for command in finding.commands] == [
        f"idle_in_transaction_session_timeout = '{idle}'",
        "jit = off",
        f"lock_timeout = '{lock}'",
        "statement_timeout = '15s'",
    ]


@pytest.mark.parametrize("seconds", [30, 10, 6, 3])
def test_they_are_those_that_a_session_without_a_pooler_has(seconds: float) -> None:
    lease = timedelta(seconds=seconds)
    sent = _session_settings(COMMAND_TIMEOUT, lease)
    for name, value in _limits(lease).items():
        number, unit = re.fullmatch(r"'(\d+)(m?s)'", value).groups()  # type: ignore[union-attr]  # it matches
        assert int(number) * (1 if unit == "ms" else 1_000) == int(sent[name])
