from __future__ import annotations

import itertools

import pytest

from app.domain.state import LIVE, MOVES, RETRYABLE, TERMINAL, State, is_legal

# The contract's table, written down a second time: a change of one without the other fails here.
TABLE: dict[State | None, str] = {
    None: "ready delayed",
    State.DELAYED: "ready cancelled dead",
    State.READY: "running delayed held cancelled dead",
    State.RUNNING: "done ready delayed suspended held dead cancelled",
    State.SUSPENDED: "ready cancelled dead",
    State.HELD: "ready cancelled dead",
    State.DEAD: "ready delayed",
    State.CANCELLED: "ready delayed",
    State.DONE: "",
}
PAIRS = list(itertools.product([None, *State], State))


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_a_move_is_legal_exactly_if_the_contract_has_it(source: State | None, target: State) -> None:
    assert is_legal(source, target) is (target.value in TABLE[source].split())


def test_no_move_is_listed_twice_and_each_has_a_cause() -> None:
    pairs = [(move.source, move.target) for move in MOVES]
    assert len(pairs) == len(set(pairs))
    assert all(move.cause for move in MOVES)


def test_live_and_terminal_states_part_the_set() -> None:
    assert set(State) == LIVE | TERMINAL
    assert set() == LIVE & TERMINAL
    assert RETRYABLE < TERMINAL


def test_a_done_job_never_moves_again() -> None:
    assert not any(is_legal(State.DONE, target) for target in State)


def test_every_live_state_can_be_cancelled_and_no_terminal_one() -> None:
    assert {source for source in State if is_legal(source, State.CANCELLED)} == LIVE


def test_only_retryable_states_come_back_to_life() -> None:
    assert {source for source in TERMINAL if any(is_legal(source, target) for target in LIVE)} == RETRYABLE


def test_every_state_can_be_reached_and_every_live_one_can_end() -> None:
    reached: set[State | None] = {None}
    while True:
        more = {move.target for move in MOVES if move.source in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == {None, *State}
    for state in LIVE:
        assert any(is_legal(state, target) for target in TERMINAL)
