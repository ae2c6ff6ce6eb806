"""The plugin as pytest runs it: modes, stores, markers, and what the page on testing jobs shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import CHECKOUT

pytestmark = pytest.mark.timeout(120)

PAGE = CHECKOUT / "docs/how-to/test-jobs.md"

BOTH = """
import pytest
from app.jobs import job
from app.testing import Env

@job("both.double")
async def double(number: int) -> int:
    return number * 2

@pytest.mark.asyncio
@pytest.mark.parametrize("env", ["memory", "postgres"], indirect=True)
async def test_double(env: Env) -> None:
    assert await env.result(await double.enqueue({"number": 4})) == 8
    assert env.driver.capabilities.name in ("memory", "postgres")
    assert len(await env.jobs()) == 1

@pytest.mark.asyncio
@pytest.mark.outlast(store="postgres")
async def test_is_empty_again(env: Env) -> None:
    assert env.driver.capabilities.name == "postgres"
    assert await env.jobs() == ()
"""


def run_pytest(folder: Path, *options: str, mode: str = "auto", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest where no configuration of this repository's is found."""
    (folder / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n"
        "addopts = --strict-markers -p app.testing.plugin\nfilterwarnings = error\n"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "LANG": "C.UTF-8"} | variables
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_what_the_page_shows_passes(tmp_path: Path) -> None:
    for index, block in enumerate(blocks()):
        (tmp_path / f"test_block_{index}.py").write_text(block)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{sum(block.count('async def test_') for block in blocks())} passed" in done.stdout


def test_the_page_shows_the_report_as_it_is(tmp_path: Path) -> None:
    shown = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    block = next(block for block in blocks() if "CrashDifference" in block)
    failing = block.replace(
        "with pytest.raises(CrashDifference, match=\"worker killed inside step 'receipt'\"):", "if 1:"
    )
    (tmp_path / "test_report.py").write_text(failing)
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    said = "\n".join(line.removeprefix("E").removeprefix("   ").rstrip() for line in done.stdout.splitlines())
    for line in shown[0].splitlines():
        assert line.strip() in said, done.stdout


@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["strict", pytest.param("auto", marks=pytest.mark.long)])
def test_one_test_runs_on_both_stores(tmp_path: Path, empty_database_url: str, mode: str) -> None:
    (tmp_path / "test_both.py").write_text(BOTH)
    done = run_pytest(tmp_path, mode=mode, OUTLAST_TEST_DATABASE_URL=empty_database_url)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_misuse_is_said_with_its_repair(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(
        "import pytest\n"
        "@pytest.mark.outlast(store='postgres')\nasync def test_no_url(env): ...\n"
        "@pytest.mark.outlast(store='mysql')\nasync def test_no_such_store(env): ...\n"
        "@pytest.mark.outlast(stores='memory')\nasync def test_no_such_option(env): ...\n"
        "@pytest.mark.outlast(jobs=[3])\nasync def test_no_job(env): ...\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "4 errors" in done.stdout
    for words in (
        "SETTINGS_INVALID: OUTLAST_TEST_DATABASE_URL is not set, and this test asks for PostgreSQL",
        "'mysql' is no store of the test kit (fix: ask for 'memory' or 'postgres')",
        "the marker outlast takes no stores",
        "3 is neither a job nor a module",
    ):
        assert words in done.stdout


def test_the_plugin_costs_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test_nothing():\n"
        "    assert not {name for name in sys.modules if name.startswith(('sqlalchemy', 'pydantic', 'app.jobs'))}\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
