"""Which PostgreSQL is taken, and that an account shut out of its folder gets a copy it can run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.cli import devdb_binaries
from app.cli.devdb_account import Account
from app.domain.errors import DriverUnavailable

SOMEBODY = Account(uid=64_999, gid=64_999, is_switched=True)
MYSELF = Account(uid=os.geteuid(), gid=os.getegid(), is_switched=False)


def install(site: Path, major: int = 18) -> Path:
    """Lay out what a wheel with a server in it installs, and give its folder of programs."""
    binaries = site / "server" / "pginstall" / "bin"
    binaries.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (binaries / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {major}.6'\n")
        (binaries / name).chmod(0o700)
    (site / "server.libs").mkdir()
    (site / "server.libs" / "libpq.so").write_text("")
    (site / "server.libs" / "libpq.so").chmod(0o600)
    return binaries


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr(devdb_binaries, "elsewhere", lambda _path: folder / "copy")
    return folder


def test_an_account_that_can_run_the_server_gets_it_where_it_is(tmp_path: Path) -> None:
    binaries = install(tmp_path)
    assert devdb_binaries.reachable_binaries(binaries, MYSELF) == binaries


def test_an_account_shut_out_gets_one_copy_open_to_it(tmp_path: Path, copies: Path) -> None:
    binaries = install(tmp_path / "closed")
    old = os.umask(0o077)
    try:
        copied = devdb_binaries.reachable_binaries(binaries, SOMEBODY)
    finally:
        os.umask(old)
    assert copied == devdb_binaries.reachable_binaries(binaries, SOMEBODY), "made once"
    assert [path.name for path in copies.iterdir()] == ["copy"], "nothing half made is left"
    assert stat.S_IMODE((copied / "postgres").stat().st_mode) == 0o755
    assert all(path.stat().st_mode & stat.S_IROTH for path in (copies / "copy").rglob("*"))
    assert (copied / "../../../server.libs/libpq.so").resolve().exists(), "found where the programs look for it"


def test_a_version_that_is_not_there_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devdb_binaries, "_bundled", lambda: None)
    monkeypatch.setattr(devdb_binaries, "_system", lambda _major: None)
    with pytest.raises(DriverUnavailable, match=r"PostgreSQL 17 is not installed.*apt install postgresql-17"):
        devdb_binaries.find_binaries("17")
    with pytest.raises(DriverUnavailable, match=r"PostgreSQL 15 or newer.*OUTLAST_DATABASE_URL"):
        devdb_binaries.find_binaries()
    with pytest.raises(DriverUnavailable, match="no PostgreSQL major version"):
        devdb_binaries.find_binaries("15.3")


def test_the_bundled_server_comes_first_and_only_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled, system = install(tmp_path / "wheel"), install(tmp_path / "system", major=16)
    monkeypatch.setattr(devdb_binaries, "_bundled", lambda: bundled)
    monkeypatch.setattr(devdb_binaries, "_system", lambda major: system if major == 16 else None)
    assert devdb_binaries.find_binaries() == bundled
    assert devdb_binaries.find_binaries("18") == bundled
    assert devdb_binaries.find_binaries("16") == system
    monkeypatch.setattr(devdb_binaries, "_bundled", lambda: None)
    assert devdb_binaries.find_binaries() == system
