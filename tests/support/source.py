"""The checkout as text: what the architecture tests read."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PYTHON_FOLDERS = ("app", "alembic", "tests", "benchmarks", "examples")
# Hidden folders are tools' own, but for those that belong to the repository.
_OURS = {".ci", ".github", ".devcontainer"}
_BUILT = {"__pycache__", "build", "dist", "htmlcov", "node_modules", "secrets"}


def python_files(*folders: str) -> list[Path]:
    """Give the Python files of some top-level folders, all of them when none is named."""
    return sorted(path for folder in folders or PYTHON_FOLDERS for path in (CHECKOUT / folder).rglob("*.py"))


def repository_files() -> Iterator[Path]:
    """Give every file of the repository, without what tools and builds leave in a checkout."""
    for folder, names, files in os.walk(CHECKOUT):
        names[:] = [name for name in names if name in _OURS or not (name.startswith(".") or name in _BUILT)]
        yield from (Path(folder) / name for name in files)


def tree_of(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(path.read_text(), filename=str(path))


def relative(path: Path) -> str:
    """Give the path as a reader of the repository writes it."""
    return path.relative_to(CHECKOUT).as_posix()


def module_name(path: Path) -> str:
    """Give the dotted name under which a file is imported."""
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
