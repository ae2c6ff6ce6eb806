from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.job import (
    LANE_NEW,
    LANE_RESUMED,
    MAX_PRIORITY,
    ClaimedJob,
    ClaimToken,
    Counters,
    JobId,
    RunId,
    WorkerId,
    key_hash,
    rank_of,
)

running = st.builds(
    Counters,
    attempt=st.integers(1, 50),
    claim_no=st.integers(1, 1000),
    crashes=st.integers(0, 5),
    interrupts=st.integers(0, 50),
)


def test_a_job_that_fails_three_times_shows_three() -> None:
    counters = Counters()
    for _ in range(3):
        counters = counters.claimed().failed()
    assert counters == Counters(attempt=3, claim_no=3)


def test_a_job_interrupted_twice_and_then_done_shows_one() -> None:
    counters = Counters().claimed().interrupted().claimed().interrupted().claimed().completed()
    assert counters == Counters(attempt=1, claim_no=3, interrupts=2)


def test_a_job_never_claimed_shows_nothing() -> None:
    assert Counters() == Counters(attempt=0, claim_no=0, crashes=0, interrupts=0)


def test_a_job_interrupted_fifty_times_is_in_its_first_attempt() -> None:
    counters = Counters()
    for _ in range(50):
        counters = counters.claimed().interrupted()
    assert counters.claimed() == Counters(attempt=1, claim_no=51, interrupts=50)


@pytest.mark.parametrize(
    ("ran_alone", "crashes_before", "crashes_after"),
    [(False, 0, 1), (False, 1, 2), (False, 2, 2), (True, 0, 1), (True, 1, 2), (True, 2, 3)],
)
def test_the_crash_that_spends_the_budget_counts_only_alone(
    ran_alone: bool, crashes_before: int, crashes_after: int
) -> None:
    counters = Counters(attempt=1, claim_no=1, crashes=crashes_before)
    crashed = counters.crashed(max_crashes=3, ran_alone=ran_alone)
    assert crashed == Counters(attempt=0, claim_no=1, crashes=crashes_after)


def test_an_operators_retry_gives_budgets_back_and_keeps_history() -> None:
    spent = Counters(attempt=25, claim_no=40, crashes=3, interrupts=7)
    assert spent.retried_by_operator() == Counters(attempt=0, claim_no=40, crashes=0, interrupts=7)


@given(running)
def test_every_end_but_a_failure_and_completion_takes_the_attempt_back(counters: Counters) -> None:
    ends = {
        "uncounted": counters.uncounted(),
        "interrupted": counters.interrupted(),
        "crashed": counters.crashed(max_crashes=3, ran_alone=True),
    }
    assert {name: end.attempt for name, end in ends.items()} == dict.fromkeys(ends, counters.attempt - 1)
    assert counters.failed().attempt == counters.completed().attempt == counters.attempt


@given(running)
def test_claim_numbers_only_grow(counters: Counters) -> None:
    ends = (
        counters.completed(),
        counters.failed(),
        counters.uncounted(),
        counters.interrupted(),
        counters.crashed(max_crashes=3, ran_alone=False),
        counters.retried_by_operator(),
    )
    assert {end.claim_no for end in ends} == {counters.claim_no}
    assert {end.claimed().claim_no for end in ends} == {counters.claim_no + 1}


# --- order


def test_priority_comes_before_lane_and_resumed_before_new() -> None:
    ranks = [rank_of(priority, lane) for priority in range(MAX_PRIORITY + 1) for lane in (LANE_RESUMED, LANE_NEW)]
    assert ranks == sorted(set(ranks))


# --- keys


def test_a_key_hash_tells_apart_what_gluing_would_not() -> None:
    triples = [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), ("a", "bc", "D"), ("", "abc", "d")]
    assert len({key_hash(*triple) for triple in triples}) == len(triples)


def test_a_key_hash_never_changes() -> None:
    # It is stored: another hash would let a second live job past the first.
    assert key_hash("default", "demo.job", "order:1") == key_hash("default", "demo.job", "order:1")
    assert key_hash("default", "demo.job", "order:1") == UUID("222c48de-a8bf-29be-232a-b5bf721c5968")


@given(st.tuples(st.text(), st.text(), st.text()), st.tuples(st.text(), st.text(), st.text()))
def test_different_keys_have_different_hashes(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (key_hash(*one) == key_hash(*other)) is (one == other)


# --- alone


@pytest.mark.parametrize(
    ("crashes", "max_crashes", "alone"), [(0, 3, False), (1, 3, False), (2, 3, True), (0, 1, True), (3, 3, True)]
)
def test_a_job_one_short_of_its_crash_budget_runs_alone(crashes: int, max_crashes: int, alone: bool) -> None:
    job_id = JobId(UUID(int=1))
    claimed = ClaimedJob(
        token=ClaimToken(job_id=job_id, claim_no=1, worker_id=WorkerId(1), fence=1),
        run_id=RunId(job_id),
        name="demo.job",
        queue="default",
        priority=5,
        tenant="default",
        payload="{}",
        counters=Counters(attempt=1, claim_no=1, crashes=crashes),
        max_attempts=25,
        max_crashes=max_crashes,
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        claimed_at=datetime(2030, 1, 1, tzinfo=UTC),
    )
    assert claimed.must_run_alone is alone
