"""What a mutant is, and the statement it changes: the definition of its module that its text stands in.

A statement is known by a short hash, so that a report can tell whether it speaks of the text at hand. No I/O but
reading the file.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """One change. `old` stands exactly once in the file; `equivalent` proves that nobody could tell the difference."""

    name: str
    old: str
    new: str = ""
    equivalent: str = ""


class Target(NamedTuple):
    """A file, what is changed in it, and who should notice."""

    path: str
    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]


class Case(NamedTuple):
    """One mutant of one file."""

    target: Target
    mutant: Mutant

    @property
    def label(self) -> str:
        """Give what `--only` is matched with and what the report's rows are found by."""
        return f"{Path(self.target.path).name}: {self.mutant.name}"

    @property
    def is_fit(self) -> bool:
        """Say whether the mutant's text stands once in its file and is changed."""
        return source(self.target.path).count(self.mutant.old) == 1 and self.mutant.old != self.mutant.new

    @property
    def statement(self) -> str:
        """Give the hash of the definition the mutant changes."""
        whole = source(self.target.path)
        line = whole[: whole.index(self.mutant.old) + 1].count("\n") + 1
        return _hash_at(self.target.path, line)


@cache
def source(path: str) -> str:
    """Give the text of a file of the tree."""
    return (ROOT / path).read_text()


@cache
def _hash_at(path: str, line: int) -> str:
    """Give the hash of the outermost definition on a line; of the whole module where there is none."""
    lines = source(path).splitlines()
    for node in ast.parse(source(path)).body:
        end = node.end_lineno or node.lineno
        if node.lineno <= line <= end:
            lines = lines[node.lineno - 1 : end]
            break
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=4).hexdigest()
