"""The catalogue of mutants fits the code: a statement that changed takes its mutants along."""

from __future__ import annotations

from tests.mutants.__main__ import ROOT, unfit
from tests.mutants.catalogue import TARGETS


def test_every_mutant_changes_one_place_of_its_file() -> None:
    assert unfit() == []


def test_every_judge_exists() -> None:
    assert [test for target in TARGETS for test in target.tests if not (ROOT / test).exists()] == []
