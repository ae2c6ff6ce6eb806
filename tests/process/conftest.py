"""What process tests may ask for: processes on a database, the store beside them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from tests.support.postgres import scratch
from tests.support.processes import Fleet, fleet_on
from tests.support.source import CHECKOUT
from tests.support.store import Store, store_on


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, for logs and the ledger."""
    with tempfile.TemporaryDirectory(prefix="outlast-process-", dir=scratch()) as path:
        yield Path(path)


@pytest.fixture
def fleet(database_url: str, folder: Path) -> Iterator[Fleet]:
    """The processes of a test."""
    with fleet_on(database_url, folder) as opened:
        yield opened


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """The database of a test."""
    async with store_on(database_url) as opened:
        await opened.publish()
        yield opened


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(CHECKOUT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.glob("outlast-*.whl")
    return built


@pytest.fixture(scope="module")
def bare_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; dependencies are borrowed, so nothing is downloaded."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return home


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has run."""

    code: int
    out: str
    err: str

    def documents(self) -> list[dict[str, Any]]:
        """Read its output as JSON, one document a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def document(self) -> dict[str, Any]:
        """Read its output as one JSON document."""
        (found,) = self.documents()
        return found


class Outlast:
    """The `outlast` command, run in the test's own process; a process of its own takes a second to start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def on(self, url: str) -> Outlast:
        """Let it find a database."""
        self._monkeypatch.setenv("OUTLAST_DATABASE_URL", url)
        return self

    def __call__(self, *words: str, code: int = 0) -> Ran:
        """Run it with arguments; another exit code than `code` is a failure of the test."""
        self._monkeypatch.setattr(sys, "argv", ["outlast", *words])
        self._monkeypatch.setenv("COLUMNS", "200")
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        ran = Ran(code=int(ended.value.code or 0), out=out, err=err)
        assert ran.code == code, ran
        return ran


@pytest.fixture
def outlast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Outlast]:
    """The command; what it does to the log of the process is undone."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield Outlast(monkeypatch, capsys)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
