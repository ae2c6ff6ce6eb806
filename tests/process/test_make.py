"""`make` on a machine that lacks something says what, and targets that do nothing yet say so and fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.source import CHECKOUT

pytestmark = pytest.mark.process


def make(folder: Path, *words: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=folder, env={"PATH": path}, capture_output=True, text=True, check=False)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A fresh checkout and a PATH with the shell's tools but no Python."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, tmp_path)
    shutil.copytree(CHECKOUT / "requirements", tmp_path / "requirements")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "make", "rm"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    return tmp_path


def python_that(folder: Path, script: str) -> None:
    """Put a python3 in the PATH that answers as `script` does; the program to run is its second argument."""
    program = folder / "bin" / "python3"
    program.write_text(f'#!/bin/sh\ncase "$1 $2" in\n{script}\nesac\n')
    program.chmod(0o755)


def test_without_python_it_says_so(bare: Path) -> None:
    done = make(bare, ".venv/.ok", path=str(bare / "bin"))
    assert done.returncode != 0
    assert "missing: no python3 in PATH" in done.stderr
    assert "fix: " in done.stderr


def test_an_old_python_is_named(bare: Path) -> None:
    python_that(bare, '*version_info*) exit 1;; --version*) echo "Python 3.9.2";;')
    done = make(bare, ".venv/.ok", path=str(bare / "bin"))
    assert done.returncode != 0
    assert "missing: Python 3.11 or newer; found Python 3.9.2" in done.stderr


def test_without_venv_the_package_to_install_is_named(bare: Path) -> None:
    python_that(bare, "*ensurepip*) exit 1;; *print*) echo python3.11-venv;;")
    done = make(bare, ".venv/.ok", path=str(bare / "bin"))
    assert done.returncode != 0
    assert "cannot create virtual environments" in done.stderr
    assert "fix: apt install python3.11-venv" in done.stderr
    assert not (bare / ".venv").exists()


def test_bench_says_what_it_measures() -> None:
    done = make(CHECKOUT, "bench", "ARGS=--help", path=os.environ["PATH"])
    assert done.returncode == 0
    assert "enqueue,drain,relay,runs,limits,fairness,latency,idle,flatness,pages" in done.stdout
