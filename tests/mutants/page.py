"""The report of the mutants: what became of each, who noticed, and which text of its statement that was about.

A run that judged some of the mutants replaces their rows and keeps the others, so a report may be made in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import ROOT, Case

PAGE = ROOT / "docs" / "reference" / "mutants.md"
_KILLED, _SURVIVED, _LEFT = "killed by ", "**survived**", "not run"
_ROW = re.compile(r"\| `(?P<file>[^`]+)` \| (?P<name>.+?) \| (?P<result>.+) \| `(?P<statement>\w+)` \|")


class Entry(NamedTuple):
    """One row. `by`: the test that noticed, empty when none did."""

    statement: str
    by: str = ""
    result: str = _LEFT

    @property
    def is_open(self) -> bool:
        """Say whether nobody has shown that a test notices, nor that none can."""
        return self.result in {_SURVIVED, _LEFT}


def judged(case: Case, by: str) -> Entry:
    """Give the row of a mutant that was run."""
    if by:
        return Entry(case.statement, by, f"{_KILLED}`{by.removeprefix('tests/')}`")
    proof = case.mutant.equivalent
    return Entry(case.statement, "", f"equivalent: {proof}" if proof else _SURVIVED)


def read_page(path: Path = PAGE) -> dict[str, Entry]:
    """Give the rows of a report by the labels of their mutants."""
    if not path.exists():
        return {}
    rows = (_ROW.fullmatch(line) for line in path.read_text().splitlines())
    found = {}
    for row in filter(None, rows):
        result = row["result"]
        by = f"tests/{result.removeprefix(_KILLED).strip('`')}" if result.startswith(_KILLED) else ""
        found[f"{row['file']}: {row['name']}"] = Entry(row["statement"], by, result)
    return found


def write_page(path: Path, cases: Iterable[Case], entries: Mapping[str, Entry]) -> None:
    """Write the report of the whole catalogue; mutants without an entry are said not to have been run."""
    rows = {case.label: entries.get(case.label) or Entry(case.statement) for case in cases}
    path.write_text("\n".join(_page(rows)) + "\n")


def _page(rows: Mapping[str, Entry]) -> Iterator[str]:
    killed = sum(bool(entry.by) for entry in rows.values())
    left = sum(entry.is_open for entry in rows.values())
    yield "# Mutants"
    yield ""
    yield "Predicates of the PostgreSQL driver's statements and rules of its marks, dropped or changed one at a time"
    yield "by `make mutants`, and the first test that noticed each. The last column is a hash of the statement it was"
    yield "tried on: a test fails while the report speaks of another text than the code's. This tries those again that"
    yield "a change concerns, and leaves the other rows as they are:"
    yield ""
    yield "```sh"
    yield f"make mutants ARGS='--changed --report {PAGE.relative_to(ROOT)}'"
    yield "```"
    yield ""
    yield f"{len(rows)} mutants: {killed} killed, {len(rows) - killed - left} equivalent, {left} open."
    yield ""
    yield "| file | predicate | result | statement |"
    yield "|---|---|---|---|"
    for label, entry in rows.items():
        file, _, name = label.partition(": ")
        yield f"| `{file}` | {name} | {entry.result} | `{entry.statement}` |"
