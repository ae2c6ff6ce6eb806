"""The wheel: installs as `outlast` beside somebody's own `app`, with its migrations inside."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.source import CHECKOUT

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def elsewhere(bare_environment: Path) -> Path:
    """An environment with the wheel and an `app` of somebody's."""
    (site,) = bare_environment.glob("lib/python*/site-packages")
    (site / "app").mkdir()
    (site / "app" / "__init__.py").write_text('OWNER = "somebody else"\n')
    return bare_environment


def run(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home)} | variables
    command = [str(home / "bin" / "python"), *words]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


def outlast(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the console script as its entry point is written down in the wheel."""
    script = home / "bin" / "outlast"
    script.write_text(
        "import sys\nfrom importlib.metadata import entry_points\n"
        "(entry,) = entry_points(group='console_scripts', name='outlast')\n"
        "sys.exit(entry.load()())\n"
    )
    return run(home, str(script), *words, **variables)


def test_the_wheel_holds_the_tree_as_outlast_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} <= {"outlast", f"outlast-{wheel.name.split('-')[1]}.dist-info"}
    assert {"outlast/alembic/env.py", "outlast/alembic/script.py.mako", "outlast/cli/main.py"} <= set(names)
    assert any(name.startswith("outlast/alembic/versions/") and name.endswith(".py") for name in names)
    assert not [name for name in names if name.endswith(".pyc") or name == "outlast/alembic/__init__.py"]
    committed = {path.relative_to(CHECKOUT / "app").as_posix() for path in (CHECKOUT / "app").rglob("*.py")}
    assert committed == {
        name.removeprefix("outlast/") for name in names if name.endswith(".py") and "/alembic/" not in name
    }


def test_both_packages_import_side_by_side(elsewhere: Path) -> None:
    done = run(
        elsewhere, "-W", "error", "-c", "import app, outlast; print(app.OWNER, outlast.__name__, outlast.__file__)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("somebody else outlast ")
    assert str(elsewhere) in done.stdout


@pytest.mark.long
def test_every_module_imports_under_its_installed_name(elsewhere: Path) -> None:
    script = (
        "import importlib, pkgutil, sys, outlast\n"
        "for found in pkgutil.walk_packages(outlast.__path__, 'outlast.'):\n"
        "    if '.alembic' not in found.name: importlib.import_module(found.name)\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'app']\n"
    )
    done = run(elsewhere, "-c", script)
    assert done.returncode == 0, done.stderr


def test_the_console_script_says_its_version(elsewhere: Path, wheel: Path) -> None:
    done = outlast(elsewhere, "version")
    assert done.returncode == 0, done.stderr
    assert wheel.name.split("-")[1] in done.stdout


def test_the_installed_package_migrates_a_database(elsewhere: Path, empty_database_url: str) -> None:
    for _ in range(2):  # again is fine
        done = outlast(elsewhere, "migrate", "up", OUTLAST_DATABASE_URL=empty_database_url)
        assert done.returncode == 0, done.stdout + done.stderr
    status = outlast(elsewhere, "migrate", "status", OUTLAST_DATABASE_URL=empty_database_url)
    assert status.returncode == 0, status.stdout + status.stderr


@pytest.mark.long
def test_a_module_beside_the_caller_is_found_by_the_installed_script(elsewhere: Path) -> None:
    (elsewhere / "shop").mkdir(exist_ok=True)
    (elsewhere / "shop" / "jobs.py").write_text(
        "from outlast.jobs import job\n@job('shop.greet')\nasync def greet() -> str:\n    return 'hello'\n"
    )
    # The store refuses to open, which comes after the modules were read.
    done = outlast(elsewhere, "worker", OUTLAST_JOBS="shop.jobs", OUTLAST_DATABASE_URL="redis://localhost/0")
    assert done.returncode == 64
    assert "NOT_IMPLEMENTED" in done.stderr


@pytest.mark.long
def test_the_test_kit_is_installed_with_its_plugin(elsewhere: Path) -> None:
    (elsewhere / "test_shop.py").write_text(
        "from outlast.jobs import job\n"
        "from outlast.testing import Env, crash_everywhere\n"
        "@job('shop.double')\nasync def double(number: int) -> int:\n    return number * 2\n"
        "async def test_double(env: Env) -> None:\n"
        "    assert await env.result(await double.enqueue({'number': 4})) == 8\n"
        "async def test_crashes() -> None:\n    await crash_everywhere(double, {'number': 4})\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-c", os.devnull, "--rootdir", str(elsewhere)]
    done = run(elsewhere, "-m", "pytest", *options, "test_shop.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
