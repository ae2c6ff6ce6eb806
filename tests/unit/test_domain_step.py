from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.domain.state import State
from app.domain.step import (
    LINES_DROPPED,
    LOG_LINE_MOST,
    MAIN_BRANCH,
    MAX_LOG_LINES,
    Place,
    StepKind,
    WaitView,
    lines_kept,
)

CALL = WaitView(
    name="call",
    kind=StepKind.CALL,
    place=Place(MAIN_BRANCH, 0),
    began_at=datetime(2030, 1, 1, tzinfo=UTC),
    code_version="1",
)


@pytest.mark.parametrize("state", [None, *State])
def test_a_call_has_failed_if_its_child_will_give_no_result(state: State | None) -> None:
    assert replace(CALL, child_state=state).has_failed is (state in {State.DEAD, State.CANCELLED})


def test_a_call_whose_child_is_gone_has_failed() -> None:
    assert replace(CALL, is_child_gone=True).has_failed


@pytest.mark.parametrize(
    ("already", "given", "kept"),
    [
        (0, 0, 0),
        (0, MAX_LOG_LINES - 1, MAX_LOG_LINES - 1),
        (MAX_LOG_LINES - 3, 2, 2),
        (MAX_LOG_LINES - 1, 0, 0),
    ],
)
def test_lines_within_the_limit_are_kept(already: int, given: int, kept: int) -> None:
    lines = tuple(str(number) for number in range(given))
    assert lines_kept(already, lines) == lines[:kept]


@pytest.mark.parametrize(
    ("already", "given", "kept"),
    [
        (0, MAX_LOG_LINES, MAX_LOG_LINES - 1),
        (0, MAX_LOG_LINES + 7, MAX_LOG_LINES - 1),
        (MAX_LOG_LINES - 3, 3, 2),
        (MAX_LOG_LINES - 1, 1, 0),
        (MAX_LOG_LINES - 1, 5, 0),
    ],
)
def test_the_last_line_there_is_room_for_says_what_becomes_of_others(already: int, given: int, kept: int) -> None:
    lines = tuple(str(number) for number in range(given))
    assert lines_kept(already, lines) == (*lines[:kept], LINES_DROPPED)


def test_a_full_run_keeps_no_more() -> None:
    assert lines_kept(MAX_LOG_LINES, ("more",)) == ()
    assert lines_kept(MAX_LOG_LINES, ()) == ()


def test_the_last_line_says_how_many_there_are() -> None:
    assert str(MAX_LOG_LINES) in LINES_DROPPED
    assert len(LINES_DROPPED) <= LOG_LINE_MOST
