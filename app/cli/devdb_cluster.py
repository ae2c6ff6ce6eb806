"""A PostgreSQL cluster in a folder: where its parts lie, how it is made, with what settings its server starts.

Owns initdb and the launch of one server process; keeps no state about whether one should run. Used by `devdb`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO

from ..domain.errors import DriverUnavailable
from .devdb_account import Account, elsewhere, make_folder
from .devdb_binaries import find_binaries, major_of, reachable_binaries
from .devdb_postmaster import Postmaster, disown_pid_file

SUPERUSER = "outlast"
DATABASE = "outlast"
PORT = 5432  # the socket's file name ends in it; nothing listens on TCP
_STOP_BUDGET = timedelta(seconds=5)
_LONGEST_SOCKET_PATH = 103  # bytes: 107 on Linux, 103 on macOS
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")
_BUILTIN_LOCALE_MAJOR = 17
_LOG_LIMIT_BYTES = 16 * 1024 * 1024
# The sessions of a killed server take a moment to notice; until then PostgreSQL refuses to start beside them.
_STILL_IN_USE = "pre-existing shared memory block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The folder `root` with `cluster/`, `socket/` and `postgres.log` in it, run under `account`."""

    root: Path
    account: Account
    version: str | None = None
    is_durable: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.root / "cluster"

    @property
    def log(self) -> Path:
        """What the server writes."""
        return self.root / "postgres.log"

    @property
    def socket_dir(self) -> Path:
        """The socket's folder: inside `root`, elsewhere when that path is too long for the kernel or reads as a list.

        Clients split a host at commas and colons, the server at commas and spaces.
        """
        inside = self.root / "socket"
        is_short = len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= _LONGEST_SOCKET_PATH
        return inside if is_short and _PLAIN_PATH.fullmatch(str(inside)) else elsewhere(inside)

    def dsn(self, database: str, *, scheme: str) -> str:
        """Give the URL of a database of this cluster; port and all, for PGPORT must not lead elsewhere."""
        return f"{scheme}://{SUPERUSER}@/{database}?host={self.socket_dir}&port={PORT}"

    def lay_out(self) -> None:
        """Create the folders that are not there yet."""
        make_folder(self.root, mode=0o755)
        make_folder(self.socket_dir, mode=0o700, account=self.account)

    def launch(self, within: timedelta) -> Postmaster:
        """Start a server, making the cluster first where there is none, and wait until it takes connections.

        Raises:
            DriverUnavailable: no suitable server is installed, or it did not start; the cause quotes its last words.
        """
        binaries = self._binaries()
        if not self._made_with():
            self._create(binaries)
        disown_pid_file(self.data)
        (self.socket_dir / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        with self._open_log() as log:
            begin = log.tell()
            child = self._spawn([binaries / "postgres", "-D", self.data, *self._settings()], log)
        started = Postmaster(pid=child.pid, cluster=self.data, child=child)
        if started.wait_ready(within):
            return started
        started.stop("immediate", _STOP_BUDGET)
        words = self._last_words(begin)
        if _STILL_IN_USE in words and within > timedelta(0):
            return self.launch(within - timedelta(seconds=1))
        raise DriverUnavailable(
            f"PostgreSQL did not start on {self.root}: {words}",
            fix=f"read {self.log}; `outlast dev --reset` starts over with an empty database",
        )

    def remove(self) -> None:
        """Delete everything; the server must be down."""
        for folder in (self.root, self.socket_dir):
            shutil.rmtree(folder, ignore_errors=True)

    def _made_with(self) -> str:
        try:
            return (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return ""

    def _binaries(self) -> Path:
        """Find the server the cluster was made with; for a new one the server asked for."""
        made_with = self._made_with()
        if made_with and self.version is not None and made_with != self.version:
            raise DriverUnavailable(
                f"the database in {self.root} was made by PostgreSQL {made_with}, not {self.version}",
                fix="`outlast dev --reset` starts over with an empty database, or choose another --data-dir",
            )
        return reachable_binaries(find_binaries(made_with or self.version), self.account)

    def _create(self, binaries: Path) -> None:
        """Make the cluster aside and name it when complete: an interrupted first start leaves nothing half done."""
        aside = self.root / "cluster.new"
        shutil.rmtree(aside, ignore_errors=True)
        make_folder(aside, mode=0o700, account=self.account)
        # The built-in provider needs nothing from the system; before 17 the C library's C.UTF-8 sorts the same way.
        locale = (
            ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
            if major_of(binaries) >= _BUILTIN_LOCALE_MAJOR
            else ["--locale=C.UTF-8"]
        )
        # Trust is safe here: the socket's folder lets in its owner alone, and there is no other way in.
        options = ["--username", SUPERUSER, "--auth=trust", "--encoding=UTF8", *locale]
        options += [] if self.is_durable else ["--no-sync"]
        self._run([binaries / "initdb", "-D", aside, *options])
        self._run([binaries / "postgres", "--single", "-D", aside, "postgres"], feed=f"create database {DATABASE}\n")
        aside.rename(self.data)

    def _settings(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
            "log_line_prefix": "%m [%p] ",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not self.is_durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        settings |= self.options
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def _open_log(self) -> IO[bytes]:
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT_BYTES:
            self.log.unlink()
        log = self.log.open("ab")
        log.seek(0, os.SEEK_END)
        return log

    def _last_words(self, begin: int) -> str:
        with self.log.open("rb") as file:
            file.seek(begin)
            lines = file.read().decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-3:]) or "it said nothing"

    def _spawn(self, command: list[str | Path], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server as a child in the caller's own process group."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_environment(),
            user=self.account.user,
            group=self.account.group,
            extra_groups=self.account.extra_groups,
        )

    def _run(self, command: list[str | Path], *, feed: str = "") -> None:
        done = subprocess.run(
            command,
            input=feed.encode(),
            capture_output=True,
            cwd="/",
            env=_environment(),
            user=self.account.user,
            group=self.account.group,
            extra_groups=self.account.extra_groups,
            check=False,
        )
        if done.returncode != 0:
            words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise DriverUnavailable(
                f"{Path(command[0]).name} failed: {' / '.join(words[-3:])}",
                fix=f"see that {self.root} is writable and has room; --data-dir chooses another folder",
            )


def _environment() -> dict[str, str]:
    """Give the server a plain environment: PGDATA, PGPORT and the like of the caller's are not meant for it."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
