"""`make mutants`: change one predicate at a time in a copy of the tree and see whether a test notices.

`--only PATTERN` takes the mutants whose `file: name` has it, `--minutes N` begins none after that time and says what
was left, `--jobs N` judges so many at once, `--report PATH` writes a page. Ends with 1 when a mutant survived or an
entry of the catalogue fits its file no more.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.mutants.catalogue import TARGETS, Mutant, Target

ROOT = Path(__file__).parents[2]
COPIED = ("app", "alembic", "tests", "docs")
FILES = ("pyproject.toml", "alembic.ini")
_PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider")
_FAILED = 1  # pytest's exit code when a test failed; anything but this and 0 is a broken run


class Verdict(NamedTuple):
    """What became of a mutant. `by`: the first test that noticed, empty when none did."""

    path: str
    name: str
    by: str


def main() -> int:
    """Run the catalogue."""
    asked = _asked()
    chosen = [
        (target, mutant)
        for target in TARGETS
        for mutant in target.mutants
        if re.search(asked.only, f"{target.path}: {mutant.name}")
    ]
    until = time.monotonic() + asked.minutes * 60
    with tempfile.TemporaryDirectory(prefix="outlast-mutants-") as folder, ThreadPoolExecutor(asked.jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(asked.jobs):
            copies.put(_copy_to(Path(folder) / str(number)))

        def judge(one: tuple[Target, Mutant]) -> Verdict | None:
            if time.monotonic() > until:
                return None
            copy = copies.get()
            try:
                return _judge(copy, *one)
            finally:
                copies.put(copy)

        verdicts = []
        for verdict in pool.map(judge, chosen):
            if verdict is not None:
                verdicts.append(verdict)
                _say(verdict)
    survivors = [verdict for verdict in verdicts if not verdict.by]
    print(f"{len(verdicts) - len(survivors)} killed, {len(survivors)} survived, {len(chosen) - len(verdicts)} not run")
    if asked.report:
        asked.report.write_text("\n".join(_page(verdicts, left=len(chosen) - len(verdicts))) + "\n")
    return 1 if survivors else 0


def unfit() -> list[str]:
    """Give the mutants whose text does not stand exactly once in its file."""
    return [
        f"{target.path}: {mutant.name}"
        for target in TARGETS
        for mutant in target.mutants
        if (ROOT / target.path).read_text().count(mutant.old) != 1 or mutant.old == mutant.new
    ]


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--report", type=Path)
    return parser.parse_args()


def _copy_to(folder: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def _judge(copy: Path, target: Target, mutant: Mutant) -> Verdict:
    path = copy / target.path
    original = path.read_text()
    if original.count(mutant.old) != 1:
        raise SystemExit(f"{target.path}: {mutant.name!r} does not stand there exactly once; mend the catalogue")
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        done = subprocess.run(
            [sys.executable, *_PYTEST, *target.tests],
            cwd=copy,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(original)
    if done.returncode not in {0, _FAILED}:
        raise SystemExit(f"{target.path}: {mutant.name!r}: pytest ended with {done.returncode}\n{done.stdout}")
    noticed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    failed = [line.partition(" ")[2].partition(" - ")[0] for line in noticed]
    return Verdict(target.path, mutant.name, failed[0] if failed else "")


def _say(verdict: Verdict) -> None:
    print(f"{'killed' if verdict.by else 'SURVIVED':9}{verdict.path}: {verdict.name} [{verdict.by}]", flush=True)


def _page(verdicts: list[Verdict], *, left: int) -> Iterator[str]:
    killed = sum(bool(verdict.by) for verdict in verdicts)
    yield "# Mutants"
    yield ""
    yield "What `make mutants ARGS='--report docs/reference/mutants.md'` found: predicates of the PostgreSQL driver's"
    yield "statements, dropped or changed one at a time, and the first test that noticed each."
    yield ""
    yield f"{killed} of {len(verdicts)} killed" + (f", {left} not run." if left else ".")
    yield ""
    yield "| file | predicate | first noticed by |"
    yield "|---|---|---|"
    for verdict in verdicts:
        by = f"`{verdict.by.removeprefix('tests/')}`" if verdict.by else "**survived**"
        yield f"| `{Path(verdict.path).name}` | {verdict.name} | {by} |"


if __name__ == "__main__":
    sys.exit(main())
