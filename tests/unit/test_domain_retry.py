from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import SettingsInvalid
from app.domain.retry import MOST_ATTEMPTS, RetryPolicy

SECOND = timedelta(seconds=1)


def test_the_defaults_are_the_contracts() -> None:
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.backoff, policy.factor) == (25, SECOND, 2.0)
    assert (policy.max_backoff, policy.jitter, policy.max_crashes) == (timedelta(hours=1), "full", 3)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (12, 2048), (13, 3600), (25, 3600), (10_000, 3600)]
)
def test_without_jitter_the_wait_doubles_up_to_the_most(attempt: int, seconds: int) -> None:
    assert RetryPolicy(jitter="none").delay_after(attempt, 0.3) == timedelta(seconds=seconds)


@pytest.mark.parametrize("attempt", [0, -5])
def test_an_attempt_before_the_first_waits_like_the_first(attempt: int) -> None:
    assert RetryPolicy(jitter="none").delay_after(attempt, 0.0) == SECOND


def test_full_jitter_is_a_share_of_the_bound() -> None:
    policy = RetryPolicy()
    assert policy.delay_after(4, 0.0) == timedelta()
    assert policy.delay_after(4, 0.25) == timedelta(seconds=2)
    assert policy.delay_after(4, 0.5) == timedelta(seconds=4)


@given(attempt=st.integers(1, 10**6), roll=st.floats(0, 1, exclude_max=True), factor=st.floats(1, 100))
def test_a_wait_is_never_negative_nor_over_the_most(attempt: int, roll: float, factor: float) -> None:
    policy = RetryPolicy(factor=factor)
    assert timedelta() <= policy.delay_after(attempt, roll) <= policy.max_backoff


@given(attempt=st.integers(1, 100), factor=st.floats(1, 10))
def test_without_jitter_waits_never_shrink(attempt: int, factor: float) -> None:
    policy = RetryPolicy(jitter="none", factor=factor)
    assert policy.delay_after(attempt, 0.0) <= policy.delay_after(attempt + 1, 0.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_attempts": 0},
        {"max_attempts": "5"},
        {"max_attempts": 2.5},
        {"max_attempts": True},
        {"max_crashes": None},
        {"backoff": 1},
        {"backoff": None},
        {"max_backoff": 3600},
        {"max_backoff": timedelta(days=366)},
        {"factor": "2"},
        {"jitter": []},
        {"max_attempts": -1},
        {"max_attempts": 32_001},
        {"max_crashes": 0},
        {"max_crashes": 1_001},
        {"backoff": timedelta()},
        {"backoff": -SECOND},
        {"factor": 0.9},
        {"factor": 101.0},
        {"factor": float("nan")},
        {"max_backoff": SECOND / 2},
        {"jitter": "some"},
    ],
    ids=str,
)
def test_a_policy_that_cannot_work_is_refused_by_name(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(SettingsInvalid) as refused:
        RetryPolicy(**fields)
    assert name in refused.value.cause
    assert name in refused.value.fix


@pytest.mark.parametrize(
    "fields",
    [{"max_attempts": 1}, {"max_attempts": 32_000}, {"max_crashes": 1}, {"factor": 1.0}, {"max_backoff": SECOND}],
    ids=str,
)
def test_the_edges_of_a_policy_work(fields: dict[str, Any]) -> None:
    RetryPolicy(**fields)


def test_the_longest_wait_leads_to_a_time_that_a_row_can_hold() -> None:
    policy = RetryPolicy(max_backoff=timedelta(days=365), factor=100, jitter="none")
    assert policy.delay_after(MOST_ATTEMPTS, 0.0) == timedelta(days=365)
