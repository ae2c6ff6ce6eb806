"""The command as a program: what it says of itself, how fast, and how processes refuse to start."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path

import asyncpg
import pytest

from app import __version__
from app.drivers.postgres import migrations
from app.drivers.postgres.connect import dsn_of
from tests.process.conftest import Outlast
from tests.support.processes import SLACK, report
from tests.support.source import CHECKOUT

SUBCOMMANDS = (
    "dev",
    "api",
    "worker",
    "run",
    "migrate",
    "jobs",
    "drain",
    "workers",
    "relay",
    "outbox",
    "openapi",
    "version",
)
HELP_SECONDS = 1.0
HEAD = migrations.head()
NOWHERE = "postgresql://outlast@/outlast?host=/nowhere"


def test_version(outlast: Outlast) -> None:
    assert outlast("version").out.startswith(f"outlast {__version__} (Python ")
    assert outlast("version", "--json").document()["version"] == __version__


@pytest.mark.process
def test_help_is_quick_and_names_every_command() -> None:
    """Read off processor time: how long others keep the machine busy is not the command's doing."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "app", "--help"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    took = time.monotonic() - began
    report(f"--help took {took:.2f} s; promised {HELP_SECONDS:g} s")
    assert done.returncode == 0, done.stderr
    assert took < HELP_SECONDS * SLACK
    for name in SUBCOMMANDS:
        assert f" {name} " in done.stdout
    heavy = "import app.cli.main, sys; print([m for m in ('fastapi', 'sqlalchemy', 'asyncpg') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", heavy], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]", "the command line imports nothing heavy before it is asked to"


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_command_explains_itself(command: str, outlast: Outlast) -> None:
    assert "Usage:" in outlast(command, "--help").out


def test_openapi_is_checked_against_the_committed_document(outlast: Outlast, tmp_path: Path) -> None:
    document = outlast("openapi").out
    assert json.loads(document)["openapi"].startswith("3.1")
    copy = tmp_path / "openapi.json"
    copy.write_text(document)
    assert "in step" in outlast("openapi", "--check", "--path", str(copy)).err
    copy.write_text(document.replace("getJob", "getJobs"))
    assert "make openapi" in outlast("openapi", "--check", "--path", str(copy), code=1).err
    copy.unlink()
    outlast("openapi", "--check", "--path", str(copy), code=1)
    shutil.copy(CHECKOUT / "openapi" / "openapi.json", copy)
    outlast("openapi", "--check", "--path", str(copy))


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (("worker",), {}, "OUTLAST_DATABASE_URL is not set"),
        (("worker", "--db", "mysql://x"), {"OUTLAST_JOBS": "tests.support.jobs_faults"}, "mysql://"),
        (("worker", "--db", NOWHERE), {}, "knows no job types"),
        (("worker", "--db", NOWHERE), {"OUTLAST_JOBS": "no.such.module"}, "no.such.module"),
        (("worker", "--db", NOWHERE, "--queues", "a:0"), {"OUTLAST_JOBS": "tests.support.jobs_faults"}, "a:0"),
        (("worker", "--db", NOWHERE), {"OUTLAST_HEARTBEAT_SECONDS": "20"}, "HEARTBEAT_SECONDS=20"),
        (("worker", "--db", NOWHERE), {"OUTLAST_CONCURRENCY": "many"}, "OUTLAST_CONCURRENCY"),
        (("worker", "--db", NOWHERE, "--drain-timeout", "soon"), {}, "'soon'"),
        (("api", "--db", NOWHERE, "--with", "janitor"), {}, "'janitor'"),
        (("run", "--db", NOWHERE, "--roles", ","), {}, "names no role"),
        (("run", "--db", NOWHERE), {"OUTLAST_POOL_SIZE": "1"}, "OUTLAST_POOL_SIZE=1"),
        (("jobs", "list"), {}, "OUTLAST_DATABASE_URL is not set"),
        (("migrate", "up"), {}, "migrations need a PostgreSQL address"),
    ],
)
def test_settings_that_cannot_work_exit_with_64(
    words: tuple[str, ...], variables: dict[str, str], said: str, outlast: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ran = outlast(*words, code=64)
    assert ran.err.startswith("error: SETTINGS_INVALID: ")
    assert said in ran.err
    assert "  fix: " in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("declared", "url", "code"),
    [
        ("@job('a.job')\ndef one() -> None: ...\n@job('a.job')\ndef two() -> None: ...\n", NOWHERE, "JOB_NAME_TAKEN"),
        ("@job('a.job', redact=['a..b'])\ndef one() -> None: ...\n", NOWHERE, "SETTINGS_INVALID"),
        ("@job('a.job')\ndef one() -> None: ...\n", "redis://localhost", "NOT_IMPLEMENTED"),
        ("@job('a.job', retry=RetryPolicy(backoff=1))\ndef one() -> None: ...\n", NOWHERE, "SETTINGS_INVALID"),
    ],
)
def test_declarations_and_stores_that_cannot_work_exit_with_64(
    declared: str, url: str, code: str, outlast: Outlast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("declared_wrong.py").write_text(f"from app.jobs import Limit, RetryPolicy, job\n{declared}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "declared_wrong", raising=False)
    monkeypatch.setenv("OUTLAST_JOBS", "declared_wrong")
    monkeypatch.setenv("OUTLAST_ADMIN_BIND", "127.0.0.1:0")
    ran = outlast("worker", "--db", url, code=64)
    assert ran.err.startswith(f"error: {code}: ")
    assert "  fix: " in ran.err
    assert "Traceback" not in ran.err
    sys.modules.pop("declared_wrong", None)


@pytest.mark.parametrize("words", [("jobs", "list"), ("migrate", "status"), ("migrate", "up")])
def test_a_database_that_is_away_exits_with_69(
    words: tuple[str, ...], outlast: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.store.OPEN", timedelta(seconds=0.2))
    ran = outlast(*words, "--db", NOWHERE, code=69)
    assert ran.err.startswith("error: DRIVER_UNAVAILABLE: ")


@pytest.mark.postgres
def test_the_schema_goes_up_and_down_and_is_shown(
    outlast: Outlast, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = outlast.on(empty_database_url)
    before = cli("migrate", "status", "--json", code=78).document()
    assert before == {"current": None, "head": HEAD, "is_current": False}
    old = cli("jobs", "list", code=78)
    assert old.err.startswith("error: SCHEMA_OUTDATED: ")
    assert "migrate up" in old.err
    assert f"is at {HEAD}" in cli("migrate", "up").err
    assert f"is at {HEAD}" in cli("migrate", "up").err, "going up twice changes nothing"
    assert cli("migrate", "status").out.strip() == f"current {HEAD}, head {HEAD}"
    assert cli("jobs", "list", "--json").documents() == []
    monkeypatch.setattr("sys.stdin", StringIO(""))
    assert cli("migrate", "down", "--to", "base", code=1).out.strip() == ""
    assert cli("migrate", "status", "--json").document()["is_current"], "without --yes nothing happens"
    assert "is at base" in cli("migrate", "down", "--to", "base", "--yes").err
    cli("migrate", "status", code=78)
    cli("migrate", "up")


@pytest.mark.postgres
def test_a_status_waits_for_somebody_else_to_migrate(outlast: Outlast, empty_database_url: str) -> None:
    cli = outlast.on(empty_database_url)
    cli("migrate", "status", "--wait", "0.1s", code=78)
    with subprocess.Popen(
        [sys.executable, "-m", "app", "migrate", "status", "--wait", "60s", "--db", empty_database_url],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    ) as waiting:
        cli("migrate", "up", "--wait-db", "5s")
        out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert out.startswith("current ")


@pytest.mark.postgres
def test_a_schema_newer_than_the_code_is_enough(outlast: Outlast, database_url: str) -> None:
    cli = outlast.on(database_url)

    async def pretend() -> None:
        connection = await asyncpg.connect(dsn_of(database_url))
        try:
            await connection.execute("update outlast.alembic_version set version_num = '9999'")
        finally:
            await connection.close()

    asyncio.run(pretend())
    assert cli("migrate", "status", "--json").document()["is_current"]


def test_a_duration_that_is_none_is_refused_with_its_repair(outlast: Outlast) -> None:
    ran = outlast("migrate", "status", "--wait", "soon", "--db", NOWHERE, code=64)
    assert "'soon' is not a number of seconds" in ran.err
    assert "fix: write 25s or 25" in ran.err


def test_the_sql_of_the_schema_is_printed_without_a_database(outlast: Outlast, monkeypatch: pytest.MonkeyPatch) -> None:
    text = outlast("migrate", "sql").out
    assert 'create table "outlast".job(' in text
    monkeypatch.setenv("OUTLAST_SCHEMA", "jobs_of_ours")
    other = outlast("migrate", "sql").out
    assert 'create table "jobs_of_ours".job(' in other
    assert '"outlast".' not in other


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.timeout(60)
def test_a_process_on_an_old_schema_exits_with_78(outlast: Outlast, empty_database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "worker", "--db", empty_database_url, "--admin-port", "0"],
        cwd=CHECKOUT,
        env={"PATH": "/usr/bin", "OUTLAST_JOBS": "tests.support.jobs_faults"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78, done.stderr
    assert "SCHEMA_OUTDATED" in done.stderr
    assert "Traceback" not in done.stderr
