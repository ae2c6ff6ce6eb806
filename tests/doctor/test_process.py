from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.control.doctor.checks import CHECKS
from app.control.doctor.finding import Examined, Finding, Level, Surroundings
from app.control.doctor.surroundings import look_at_modules, look_at_port
from tests.doctor.clinic import clock

HOST = "127.0.0.1"


def found(code: str, surroundings: Surroundings) -> Finding:
    (check,) = (check for check in CHECKS if check.code == code)
    return check.judge(Examined(now=clock(), took=timedelta(), surroundings=surroundings))


def modules(*names: str) -> Finding:
    return found("modules", Surroundings(pool_size=4, drain=timedelta(seconds=25), modules=look_at_modules(names)))


def port(number: int) -> Finding:
    looked = look_at_port("OUTLAST_ADMIN_BIND", HOST, number)
    return found("ports", Surroundings(pool_size=4, drain=timedelta(seconds=25), ports=(looked,)))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of jobs to be written, importable as `doctored_jobs`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "doctored_jobs.py"
    sys.modules.pop("doctored_jobs", None)


def test_a_module_that_does_not_import_is_named_with_its_line_and_corrected(module: Path) -> None:
    module.write_text("from app.jobs import job\n\n1 / 0\n")
    finding = modules("doctored_jobs")
    assert finding.level is Level.FAIL
    assert "ZeroDivisionError" in finding.text
    assert finding.fix == f"correct {module}:3"
    module.write_text('from app.jobs import job\n\n\n@job("doctored.job")\nasync def one() -> None: ...\n')
    assert modules("doctored_jobs").facts["job_types"] == 1


def test_a_module_that_is_not_there_says_where_to_look() -> None:
    finding = modules("no_such_module")
    assert (finding.level, "PYTHONPATH" in (finding.fix or "")) == (Level.FAIL, True)
    assert modules().level is Level.SKIP


def test_a_port_that_another_has_is_exchanged_for_a_free_one() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen(1)
        finding = port(other.getsockname()[1])
        assert finding.level is Level.FAIL
        (command,) = finding.commands
        name, _, address = command.partition("=")
        assert (name, address.partition(":")[0]) == ("OUTLAST_ADMIN_BIND", HOST)
        assert port(int(address.partition(":")[2])).level is Level.OK


def test_what_was_not_looked_at_is_said_to_be() -> None:
    nothing = Surroundings(pool_size=4, drain=timedelta(seconds=25))
    for code in ("modules", "ports", "grace", "schema", "queues", "outbox"):
        finding = found(code, nothing)
        assert (finding.level, finding.fix) == (Level.SKIP, None), code


def test_codes_are_unique_and_every_check_says_when() -> None:
    assert len({check.code for check in CHECKS}) == len(CHECKS)
    assert all(check.title and check.when for check in CHECKS)
