"""`outlast dev`: the whole service in one process, on a PostgreSQL of its own, for the first five minutes and after.

Owns nothing but the order: database, schema, roles, banner; and back. The database is stopped last and within the
drain's budget, also when work had to be given up.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.errors import SettingsInvalid
from .report import say

if TYPE_CHECKING:
    from ..lifecycle.shutdown import Shutdown
    from ..process import Addresses
    from ..settings import Settings
    from .devdb import DevPostgres

_Port = Annotated[int | None, typer.Option(help="Port of the API; the next free one without it.", min=0, max=65_535)]
_AdminPort = Annotated[int | None, typer.Option(help="Port of probes and metrics.", min=0, max=65_535)]
_DEFAULT_PORT = 8080
_DEFAULT_ADMIN_PORT = 8081
_PORTS_TRIED = 50
_LOOPBACK = "127.0.0.1"
_COMMAND = "outlast" if __name__.startswith("outlast") else ".venv/bin/outlast"
_STOP_DATABASE = timedelta(seconds=5)
_STOP_AT_LEAST = timedelta(milliseconds=500)


def dev(
    *,
    port: _Port = None,
    admin_port: _AdminPort = None,
    db: Annotated[str | None, typer.Option("--db", help="Use this database instead of starting one.")] = None,
    data_dir: Annotated[Path, typer.Option(help="Where the database of its own is kept.")] = Path(".data"),
    reset: Annotated[bool, typer.Option("--reset", help="Delete that database first.")] = False,
    no_demo: Annotated[bool, typer.Option("--no-demo", help="Leave the demo jobs out.")] = False,
) -> None:
    """Start everything: a PostgreSQL of its own, the API, worker, relay, scheduler and demo jobs. Ctrl-C drains."""
    from ..settings import Settings

    started = time.monotonic()
    api_port = _free_port(port, _DEFAULT_PORT)
    settings = Settings.read(
        bind=f"{_LOOPBACK}:{api_port}",
        admin_bind=f"{_LOOPBACK}:{_free_port(admin_port, max(_DEFAULT_ADMIN_PORT, api_port + 1))}",
    )
    address = db or settings.database_url
    if reset and address is not None:
        raise SettingsInvalid(
            "--reset deletes only the database that dev keeps itself", fix="leave out --db, or reset yours by hand"
        )
    with _database(address, data_dir, reset=reset) as (url, postgres):
        complete = _with_webhooks(_complete(settings, url, no_demo=no_demo), data_dir)
        sys.exit(_run(complete, postgres, started))


def _run(settings: Settings, postgres: DevPostgres | None, started: float) -> int:
    from ..process import ROLES, Process
    from ..schema import upgrade_schema

    if not str(settings.database_url).startswith("memory:"):
        asyncio.run(upgrade_schema(settings))

    def announce(at: Addresses) -> None:
        for line in _banner(at, settings, seconds=time.monotonic() - started):
            say(line)

    def stop_database(shutdown: Shutdown) -> None:
        # Here and not on the way out: a process that gave work up ends without unwinding.
        if postgres is not None:
            postgres.stop(within=_left(shutdown))

    return Process(settings, ROLES, is_dev=True, announce=announce, last=stop_database).run()


def _left(shutdown: Shutdown) -> timedelta:
    """Give what the drain leaves for stopping the database; past that it is ended without a checkpoint."""
    if shutdown.notice is None:
        return _STOP_DATABASE
    left = timedelta(seconds=shutdown.notice.deadline - time.monotonic())
    return min(max(left, _STOP_AT_LEAST), _STOP_DATABASE)


def _complete(settings: Settings, url: str, *, no_demo: bool) -> Settings:
    from ..bootstrap import DEMO_JOBS

    jobs = settings.jobs if no_demo or DEMO_JOBS in settings.jobs else (*settings.jobs, DEMO_JOBS)
    complete = settings.model_copy(update={"database_url": url, "jobs": jobs})
    if "queues" in settings.model_fields_set:
        return complete
    # Whoever tries a job of their own should not have to name its queue twice.
    return complete.model_copy(update={"queues": ",".join([complete.queues, *_others(complete)])})


def _with_webhooks(settings: Settings, data_dir: Path) -> Settings:
    """Let webhooks be tried: with a master key of this directory's, and receivers on this machine."""
    if settings.callback_key_file is not None:
        return settings
    path = data_dir / "callback.key"
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    allowed = settings.callback_allow or ("localhost", "127.0.0.0/8", "::1")
    return settings.model_copy(update={"callback_key_file": path, "callback_allow": allowed})


@contextmanager
def _database(address: str | None, data_dir: Path, *, reset: bool) -> Iterator[tuple[str, DevPostgres | None]]:
    if address is not None:
        yield address, None
        return
    from .devdb import DevPostgres

    postgres = DevPostgres(data_dir / "pg", say=say)
    if reset:
        postgres.wipe()
    postgres.start()
    try:
        postgres.supervise()
        yield postgres.dsn(), postgres
    finally:
        postgres.stop(within=_STOP_DATABASE)


def _banner(at: Addresses, settings: Settings, *, seconds: float) -> tuple[str, ...]:
    from ..bootstrap import DEMO_JOBS

    url = at.api
    example = "demo.count_lines" if DEMO_JOBS in settings.jobs else "NAME"
    return (
        "",
        f"outlast is ready after {seconds:.1f} s",
        f"  pages   {url}/ui",
        f"  API     {url}/v1/jobs      probes and metrics {at.admin}",
        "  enqueue a job and wait for its result:",
        f"    curl -sS {url}/v1/jobs -H 'content-type: application/json' -H 'prefer: wait=20' \\",
        f"""      -d '{{"name": "{example}", "payload": {{}}}}'""",
        "  see what else it can do:",
        f"    curl -sS {url}/v1/job-types",
        "  read jobs from a second terminal:",
        f"    OUTLAST_DATABASE_URL='{_plain(settings.database_url)}' {_COMMAND} jobs list",
        "  stop: Ctrl-C (running jobs are told, and run again at the next start)",
        "",
    )


def _others(settings: Settings) -> list[str]:
    from ..bootstrap import unserved_queues

    return sorted(set(unserved_queues(settings).values()))


def _plain(url: str | None) -> str:
    return str(url).replace("postgresql+asyncpg://", "postgresql://", 1)


def _free_port(wanted: int | None, default: int) -> int:
    if wanted is not None:
        return wanted
    for port in range(default, default + _PORTS_TRIED):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_LOOPBACK, port))
            except OSError:
                continue
            return port
    raise SettingsInvalid(
        f"no free port from {default} to {default + _PORTS_TRIED - 1}", fix="name one with --port and --admin-port"
    )
