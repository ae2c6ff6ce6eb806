"""A transaction pooler in front of the tests' PostgreSQL: pgbouncer as it comes, on a free port of this machine.

`PGBOUNCER` names the program, else it is looked for in PATH. Where it is missing a test is skipped with the way to
install it; in CI it fails. Owns the process and its files, not the server behind it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from app.cli.devdb_account import Account, server_account
from tests.support.processes import PATIENCE

_MISSING = "pgbouncer is not installed; `apt install pgbouncer` brings it, PGBOUNCER=/path/to/pgbouncer names another"

KEEPS_STATEMENTS = (1, 21)

# What a stock pgbouncer.ini leaves to be written: where the databases are, how clients are known, and the mode.
_INI = """\
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
logfile = {log}
{options}
"""


# What a session can leave behind, asked at one server. pgbouncer keeps the first five settings in step itself.
_LEFT = """
select (select backend_start > $1 from pg_stat_activity where pid = pg_backend_pid()) as is_new,
  array(select 'set ' || name from pg_settings where source = 'session' and name <> all(
    array['application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings']))
  || array(select 'prepare ' || name from pg_prepared_statements where name !~ '^PGBOUNCER_')
  || array(select 'listen ' || channel from pg_listening_channels() channel)
  || array(select 'lock ' || locktype from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())
  || array(select 'temp ' || relname from pg_class where relnamespace = pg_my_temp_schema()) as left_behind,
  current_setting('canary.mark', true) as mark"""


class Pooler:
    """A running pgbouncer and the URLs of databases behind it."""

    def __init__(self, *, port: int, log: Path) -> None:
        self.port = port
        self.log = log

    def url(self, direct: str) -> str:
        """Give the URL of a database behind the pooler for its direct one."""
        path = urlsplit(direct).path
        return f"postgresql+asyncpg://anybody@127.0.0.1:{self.port}{path}?sslmode=disable"


def program() -> Path:
    """Give pgbouncer's program; skips the test where there is none, and fails it in CI."""
    named = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if named is not None and Path(named).is_file():
        return Path(named).absolute()
    if os.environ.get("CI") == "true":
        pytest.fail(_MISSING, pytrace=False)
    pytest.skip(_MISSING)


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder the pooler's account can reach."""
    with tempfile.TemporaryDirectory(prefix="outlast-pooler-") as made:
        yield Path(made)


def version() -> tuple[int, int]:
    """Give the pooler's version; from `KEEPS_STATEMENTS` on it gives prepared statements names of its own."""
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
    major, minor, *_ = said.split()[1].split(".")
    return int(major), int(minor)


async def at_each_server(url: str, *, mark: str | None = None) -> list[Any]:
    """Look at every idle server connection behind a pooler, and leave a mark of a session's own at each if asked to.

    They are taken one after another and kept; when the pooler has to open one, all there were have been seen.
    """
    clients: list[asyncpg.Connection] = []
    seen: list[Any] = []
    plain = url.replace("+asyncpg", "")
    try:
        while True:
            client = await asyncpg.connect(plain, statement_cache_size=0)
            clients.append(client)
            await client.execute("begin")
            began = seen[0]["began"] if seen else None
            row = await client.fetchrow(f"select clock_timestamp() as began, f.* from ({_LEFT}) f", began)
            seen.append(row)
            if row["is_new"]:
                return seen[:-1]
            if mark is not None:
                await client.execute(f"set canary.mark = '{mark}'")
    finally:
        for client in clients:
            if not client.is_closed():
                await client.execute("commit")
            await client.close()


@contextmanager
def running_pooler(direct: str, folder: Path, **options: str) -> Iterator[Pooler]:
    """Run pgbouncer in transaction mode before the server of `direct`; `options` are lines of its configuration."""
    binary, account, port = program(), server_account(), _free_port()
    ini, log = folder / "pgbouncer.ini", folder / "pgbouncer.log"
    lines = "\n".join(f"{name} = {value}" for name, value in options.items())
    ini.write_text(_INI.format(server=_server(direct), port=port, log=log, options=lines))
    folder.chmod(0o711)
    account.owns(folder)
    account.owns(ini)
    process = _start(binary, ini, account)
    try:
        _until_open(process, port, log)
        yield Pooler(port=port, log=log)
    finally:
        process.send_signal(signal.SIGTERM if process.poll() is None else 0)
        process.wait(PATIENCE)


def _start(binary: Path, ini: Path, account: Account) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [binary, "-q", ini],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        user=account.user,
        group=account.group,
        extra_groups=account.extra_groups,
    )


def _server(direct: str) -> str:
    """Give a server's URL in the words of pgbouncer's `[databases]`."""
    url = urlsplit(direct)
    query = parse_qs(url.query)
    host = url.hostname or query["host"][0]
    port = url.port or query.get("port", ["5432"])[0]
    words = {"host": host, "port": port, "user": url.username or query.get("user", [None])[0], "password": url.password}
    return " ".join(f"{name}={value}" for name, value in words.items() if value is not None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until_open(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            said = log.read_text(errors="replace")[-2000:] if log.exists() else "it said nothing"
            assert process.poll() is None, f"pgbouncer ended with {process.returncode}: {said}"
            assert time.monotonic() < deadline, f"pgbouncer does not answer: {said}"
            time.sleep(0.01)
        else:
            return
