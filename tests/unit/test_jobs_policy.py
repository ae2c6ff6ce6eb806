"""What a declaration may say, and what is refused before a first job can find it out."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.domain.errors import RequestInvalid, SettingsInvalid
from app.jobs import Limit, Rate, RetryAfter, RetryPolicy, Snooze, Terminal
from app.jobs.policy import JobPolicy, PolicyOptions
from tests.unit.jobs_fakes import NOW

SECOND = timedelta(seconds=1)


def test_a_policy_is_frozen_and_has_the_documented_defaults() -> None:
    policy = JobPolicy()
    assert (policy.queue, policy.priority, policy.on_conflict, policy.abort) == ("default", 5, "return", "cancel")
    assert policy.retry == RetryPolicy()
    with pytest.raises(FrozenInstanceError):
        policy.queue = "other"  # type: ignore[misc] # what the test shows


def test_the_keywords_of_job_are_the_fields_of_the_policy() -> None:
    assert set(PolicyOptions.__annotations__) == {field.name for field in fields(JobPolicy)}


@pytest.mark.parametrize("field", ["timeout", "deadline", "max_queue_time", "dedupe_for"])
@pytest.mark.parametrize("value", [timedelta(), -SECOND, timedelta(microseconds=1), timedelta(days=10_000), 5, "5s"])
def test_durations_that_cannot_work_are_refused(field: str, value: object) -> None:
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(SettingsInvalid, match=field):
        JobPolicy(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": ""},
        {"queue": "Mail"},
        {"queue": "mail\n"},
        {"queue": "ma\u202eil"},
        {"priority": -1},
        {"priority": 10},
        {"priority": True},
        {"priority": 1.0},
        {"retry": 3},
        {"on_conflict": "ignore"},
        {"abort": "kill"},
        {"terminal_on": (ValueError("an instance"),)},
        {"terminal_on": (int,)},
        {"terminal_on": ValueError},
        {"terminal_on": 3},
        {"step_timeout": timedelta()},
        {"step_timeout": -SECOND},
        {"event_poll": timedelta()},
        {"tenant": "{"},
        {"tenant": 3},
        {"idempotency_key": "order:{}"},
        {"limits": [object()]},
        {"limits": 0},
        {"limits": [Limit(1), Limit(2)]},
        {"limits": [Limit(1, name="A limit")]},
        {"limits": [Limit(1, name=f"l{n}") for n in range(9)]},
        {"rate": object()},
        {"rate": 0},
    ],
)
def test_values_that_cannot_work_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsInvalid):
        JobPolicy(**wrong)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Limit, {"n": 0}),
        (Limit, {"n": True}),
        (Limit, {"n": 1_000_001}),
        (Limit, {"n": 4, "key": "{"}),
        (Limit, {"n": 4, "key": 3}),
        (Limit, {"n": 4, "name": "rate"}),
        (Rate, {"n": 0, "per": SECOND}),
        (Rate, {"n": 1, "per": timedelta()}),
        (Rate, {"n": 1, "per": 60}),
        (Rate, {"n": 1, "per": SECOND, "key": ""}),
    ],
)
def test_a_limit_that_cannot_work_is_refused_where_it_is_made(kind: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        kind(**fields)
    assert caught.value.fix


@pytest.mark.parametrize("nothing", [{"limits": []}, {"limits": ()}, {"rate": None}, {"redact": []}])
def test_what_need_not_be_may_be_left_empty(nothing: dict[str, Any]) -> None:
    assert JobPolicy(**nothing).queue == "default"


def test_snooze_is_no_exception_that_a_body_would_catch() -> None:
    assert not issubclass(Snooze, Exception)
    assert Snooze(SECOND).delay == SECOND
    assert str(Terminal("gone")) == "gone"


def test_retry_after_counts_from_the_given_instant() -> None:
    assert RetryAfter(SECOND).delay_from(NOW) == SECOND
    assert RetryAfter(NOW + SECOND, "busy").delay_from(NOW) == SECOND
    assert RetryAfter(NOW - SECOND).delay_from(NOW) == timedelta()
    assert str(RetryAfter(SECOND, "busy")) == "busy"


@pytest.mark.parametrize("when", [-SECOND, timedelta(days=9999), datetime(2026, 1, 1)])  # noqa: DTZ001 # naive on purpose
def test_retry_after_refuses_what_is_no_time(when: timedelta | datetime) -> None:
    with pytest.raises(RequestInvalid):
        RetryAfter(when)


@pytest.mark.parametrize("delay", [timedelta(), -SECOND, timedelta(days=9999)])
def test_snooze_refuses_what_is_no_wait(delay: timedelta) -> None:
    with pytest.raises(RequestInvalid):
        Snooze(delay)
