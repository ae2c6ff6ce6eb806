"""Which records lie behind what was asked for: numbers are in order, branches side by side."""

from __future__ import annotations

import pytest

from app.domain.step import Place
from app.replay.order import passed_by
from tests.unit.replay_traces import step


@pytest.mark.parametrize(
    ("recorded", "asked", "is_behind"),
    [
        (("", 0), ("", 1), True),
        (("", 1), ("", 0), False),
        (("", 0), ("0.0", 0), True),  # the code has branches where the record has a step
        (("0.0", 0), ("", 0), True),
        (("", 1), ("0.0", 5), False),
        (("0.1", 0), ("0.0", 5), False),  # side by side
        (("0.1", 5), ("", 1), True),
        (("0.1", 5), ("1.0", 0), True),
        (("2.1.0.3", 1), ("2.1.0.3", 2), True),
        (("2.1.0.3", 1), ("2.1.0.2", 9), False),
        (("2.1.0.3", 1), ("2.1", 1), True),
        (("2.1.0.3", 1), ("2.0", 9), False),
        (("~load", 0), ("", 9), False),  # a task of the body's own has no place in any order
        (("", 0), ("~load", 9), False),
    ],
)
def test_a_record_is_behind_what_can_only_be_asked_for_after_it(
    recorded: tuple[str, int], asked: tuple[str, int], *, is_behind: bool
) -> None:
    record = step("old", recorded[1], branch=recorded[0])
    assert (passed_by([record], {"new": Place(*asked)}) is record) is is_behind


def test_what_was_asked_for_is_not_behind() -> None:
    records = [step("one", 0), step("two", 1), step("three", 2)]
    assert passed_by(records, {"one": Place("", 0), "later": Place("", 5)}) is records[1]
    assert passed_by(records, {record.name: record.place for record in records}) is None
