"""`make mutants`: change one predicate at a time in a copy of the tree and see whether a test notices.

`--only PATTERN` takes the mutants whose `file: name` has it, `--changed` those the report does not vouch for (new ones,
survivors, and those whose statement has another text now), `--minutes N` begins none after that time, `--jobs N` judges
so many at once, `--report PATH` writes a page, keeping its rows of mutants that were not judged. Ends with 1 when a
mutant survived without a proof, or was noticed in spite of one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import CASES
from tests.mutants.mutant import ROOT, Case
from tests.mutants.page import Entry, judged, read_page, write_page
from tests.support import postgres

COPIED = ("app", "alembic", "tests", "docs")
FILES = ("pyproject.toml", "alembic.ini")
_PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider")
_FAILED = 1  # pytest's exit code when a test failed; anything but this, 0 and 4 (no such test) is a broken run
_NO_SUCH_TEST = 4


def main() -> int:
    """Run the catalogue, or a part of it."""
    asked = _asked()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an orderly end, or the server stays behind
    page = read_page()
    chosen = [
        case
        for case in CASES
        if re.search(asked.only, case.label)
        if not (asked.changed and case.label in page and _is_current(case, page[case.label]))
    ]
    if misfits := [case.label for case in chosen if not case.is_fit]:
        raise SystemExit(f"their text does not stand once in its file; mend the catalogue: {misfits}")
    kept = read_page(asked.report) if asked.report else {}
    entries: dict[str, Entry] = {}
    for case, by in _judge_all(chosen, page, asked):
        entries[case.label] = judged(case, by)
        print(f"{case.label}: {entries[case.label].result}", flush=True)
        if asked.report:  # after each, so that what was found outlives an interruption
            write_page(asked.report, CASES, kept | entries)
    wrong = [label for label, entry in entries.items() if entry.is_open]
    disproved = [case.label for case in chosen if case.mutant.equivalent and entries.get(case.label, Entry("")).by]
    print(f"{len(entries)} judged, {len(chosen) - len(entries)} left; survived: {wrong or 'none'}")
    if disproved:
        print(f"noticed in spite of a proof: {disproved}")
    return 1 if wrong or disproved else 0


def _is_current(case: Case, entry: Entry) -> bool:
    return not entry.is_open and entry.statement == case.statement


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--report", type=Path)
    return parser.parse_args()


def _judge_all(chosen: list[Case], page: Mapping[str, Entry], asked: argparse.Namespace) -> Iterator[tuple[Case, str]]:
    """Judge so many at once, each in a copy of the tree of its own, all on one server; gives who noticed."""
    until = time.monotonic() + asked.minutes * 60
    with _server() as url, tempfile.TemporaryDirectory(prefix="outlast-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(asked.jobs):
            copies.put(_copy_to(Path(folder) / str(number)))

        def judge(case: Case) -> tuple[Case, str] | None:
            if time.monotonic() > until:
                return None
            copy = copies.get()
            try:
                return case, _judge(copy, case, url, first=page[case.label].by if case.label in page else "")
            finally:
                copies.put(copy)

        pool = ThreadPoolExecutor(asked.jobs)
        try:
            yield from filter(None, pool.map(judge, chosen))
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _server() -> Iterator[str]:
    """Start one server for all judges: each of them makes databases of its own."""
    with tempfile.TemporaryDirectory(prefix="outlast-mutants-", dir=postgres.scratch()) as folder:
        Path(folder).chmod(0o711)  # the server may run under another account
        cluster = postgres.new_cluster(Path(folder) / "pg")
        cluster.start()
        try:
            yield cluster.dsn(postgres.SUPERUSER_DATABASE)
        finally:
            cluster.stop("immediate")


def _copy_to(folder: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def _judge(copy: Path, case: Case, url: str, *, first: str) -> str:
    """Change the copy, run the test that noticed last time, then all of the file's, and give the first to fail."""
    path = copy / case.target.path
    original = path.read_text()
    path.write_text(original.replace(case.mutant.old, case.mutant.new))
    try:
        return (_first_failure(copy, url, first) if first else "") or _first_failure(copy, url, *case.target.tests)
    finally:
        path.write_text(original)


def _first_failure(copy: Path, url: str, *tests: str) -> str:
    """Run tests until one fails; gives that one's id, empty when none did."""
    done = subprocess.run(
        [sys.executable, *_PYTEST, *tests],
        cwd=copy,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "TEST_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == _NO_SUCH_TEST and len(tests) == 1:
        return ""
    if done.returncode not in {0, _FAILED}:
        raise SystemExit(f"pytest ended with {done.returncode} on {tests}\n{done.stdout}")
    noticed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    failed = [line.partition(" ")[2].partition(" - ")[0] for line in noticed]
    if done.returncode == _FAILED and not failed:
        raise SystemExit(f"pytest names no test that failed, of {tests}\n{done.stdout}")
    return failed[0] if failed else ""


if __name__ == "__main__":
    sys.exit(main())
