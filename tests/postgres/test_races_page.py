"""The page about concurrency and the tests of the races say the same."""

from __future__ import annotations

import ast
import re
from itertools import combinations_with_replacement
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "concurrency.md"
VERBS = ("claim", "settle", "cancel", "reap", "renew", "retry", "promote", "purge")

_TIMES = " \N{MULTIPLICATION SIGN} "
_TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def cells() -> dict[str, list[str]]:
    """Give the tests that each cell of the page names."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("|") and _TIMES in line]
    assert all(len(row) == 4 for row in rows)
    named = {row[0].strip(): ["::".join(found) for found in _TEST.findall(row[3])] for row in rows}
    assert len(named) == len(rows), "a pair stands twice"
    return named


def races(files: str = "test_races_*.py") -> set[str]:
    """Give the tests there are."""
    found = set()
    for path in Path(__file__).parent.glob(files):
        if path != Path(__file__):
            tree = ast.parse(path.read_text())
            names = (node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef))
            found |= {f"{path.name}::{name}" for name in names if name.startswith("test_")}
    return found


def test_every_pair_of_the_eight_has_a_cell() -> None:
    pairs = {f"{one}{_TIMES}{other}" for one, other in combinations_with_replacement(VERBS, 2)}
    assert len(pairs) == 36
    assert pairs <= cells().keys()


def test_every_cell_names_a_test_that_exists() -> None:
    existing = races("test_*.py")
    for pair, named in cells().items():
        assert named, f"{pair} names no test"
        assert set(named) <= existing, f"{pair} names tests that are not there: {set(named) - existing}"


def test_every_race_stands_on_the_page() -> None:
    assert races() <= {name for named in cells().values() for name in named}
