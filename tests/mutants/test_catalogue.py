"""The catalogue of mutants fits the code, and the report speaks of both: a changed statement is tried again."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import CASES
from tests.mutants.mutant import ROOT
from tests.mutants.page import read_page

TRY_AGAIN = "run: make mutants ARGS='--changed --report docs/reference/mutants.md'"


def test_every_mutant_changes_one_place_of_its_file() -> None:
    assert [case.label for case in CASES if not case.is_fit] == []


def test_every_judge_exists() -> None:
    assert [test for case in CASES for test in case.target.tests if not (ROOT / test).exists()] == []


def test_labels_are_unique() -> None:
    labels = [case.label for case in CASES]
    assert len(labels) == len(set(labels))


def test_the_report_has_a_row_for_each_mutant_and_no_other() -> None:
    assert list(read_page()) == [case.label for case in CASES], TRY_AGAIN


def test_no_mutant_survives() -> None:
    assert [label for label, entry in read_page().items() if entry.is_open] == [], TRY_AGAIN


def test_equivalents_are_those_with_a_proof() -> None:
    page = read_page()
    proved = {case.label: f"equivalent: {case.mutant.equivalent}" for case in CASES if case.mutant.equivalent}
    assert {label: entry.result for label, entry in page.items() if not entry.by} == proved


@pytest.mark.parametrize("path", sorted({case.target.path for case in CASES}))
def test_the_report_speaks_of_the_statements_as_they_are(path: str) -> None:
    page = read_page()
    cases = [case for case in CASES if case.target.path == path]
    assert [case.label for case in cases if page[case.label].statement != case.statement] == [], TRY_AGAIN


def test_whoever_noticed_is_still_there() -> None:
    gone = []
    for label, entry in read_page().items():
        path, _, name = entry.by.partition("::")
        if entry.by and f"def {name.partition('[')[0]}(" not in (ROOT / path).read_text():
            gone.append(label)
    assert gone == [], TRY_AGAIN
