"""`outlast doctor`, `health` and `jobs explain`: what they print, and what they exit with."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from app.control.doctor.checks import CHECKS
from tests.process.conftest import Outlast
from tests.support.store import store_on

pytestmark = [pytest.mark.postgres]

DEMO = "app.handlers.demo"


@pytest.fixture
def cli(outlast: Outlast, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Outlast:
    """The command on a fresh database, on ports that are free."""
    for name in ("OUTLAST_BIND", "OUTLAST_ADMIN_BIND"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            monkeypatch.setenv(name, f"127.0.0.1:{probe.getsockname()[1]}")
    monkeypatch.setenv("OUTLAST_JOBS", DEMO)
    return outlast.on(database_url)


def test_the_doctor_says_line_by_line_what_is_well_and_what_to_do(cli: Outlast) -> None:
    ran = cli("doctor", code=1)
    lines = ran.out.splitlines()
    shown = {line[2:].split()[0]: line[0] for line in lines if line[0] != " "}
    assert list(shown) == [check.code for check in CHECKS]
    assert {code for code, sign in shown.items() if sign == "✗"} == {"durability"}
    assert shown["modules"] == shown["ports"] == "✓"
    assert any("fix: switch on what is off" in line for line in lines)
    assert any(line.strip() == "alter system set fsync = on" for line in lines)
    assert "1 wrong" in ran.err
    document = cli("doctor", "--json", code=1).document()
    assert document["status"] == "fail"
    assert {one["code"]: one["level"] for one in document["checks"]}["schema"] == "ok"


def test_the_doctor_comes_to_a_store_that_would_not_open(outlast: Outlast, make_database: Callable[..., str]) -> None:
    ran = outlast.on(make_database(migrated=False))("doctor", code=1)
    assert "outlast migrate up" in ran.out
    away = outlast.on("postgresql://nobody@127.0.0.1:1/nothing")("doctor", code=69)
    assert away.out.startswith("✗ database")
    outlast("doctor", "--db", "mysql://host/db", code=64)


def test_a_module_that_does_not_import_is_found(cli: Outlast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_jobs.py").write_text("import nothing_like_it\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OUTLAST_JOBS", "broken_jobs")
    assert "✗ modules" in cli("doctor", code=1).out


def test_health_is_one_line_and_an_exit_code(cli: Outlast, make_database: Callable[..., str]) -> None:
    assert cli("health").out.startswith("ok: postgres answers in ")
    assert cli("health", "--json").document()["workers"] == 0
    assert cli.on(make_database(migrated=False))("health", code=78).out == ""
    assert cli("health", "--db", "redis://host", code=64).out == ""


def test_a_job_is_explained(cli: Outlast, database_url: str) -> None:
    async def publish() -> None:
        async with store_on(database_url) as store:
            await store.publish()

    asyncio.run(publish())
    job = cli("jobs", "enqueue", "faults.hold", "--payload", '{"gate": "a"}', "--delay", "60", "--json").document()
    lines = cli("jobs", "explain", job["id"]).out.splitlines()
    assert lines[0] == f"{job['id']}  faults.hold in default: delayed"
    assert [line.split()[0] for line in lines[1:]] == ["delayed", "no_workers", "fix:"]
    explained = cli("jobs", "explain", job["id"], "--json").document()
    assert [reason["code"] for reason in explained["reasons"]] == ["delayed", "no_workers"]
    assert (explained["runnable"], explained["served"]) == (False, False)
    assert "JOB_NOT_FOUND" in cli("jobs", "explain", "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f", code=4).err
