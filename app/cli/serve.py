"""`outlast api`, `worker`, `relay`, `scheduler` and `run`: processes that stay until they are told to leave.

Flags override settings; everything else is the composition root's. The exit code is the process's own: 0 clean, 70
work was abandoned, 75 a loop died.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.errors import SettingsInvalid
from .durations import seconds
from .loading import loading
from .report import say

if TYPE_CHECKING:
    from ..process import Addresses
    from ..settings import Settings

_Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
_Port = Annotated[int | None, typer.Option(help="Port of the API.", min=0, max=65_535)]
_AdminPort = Annotated[int | None, typer.Option(help="Port of probes and metrics.", min=0, max=65_535)]
_Queues = Annotated[str | None, typer.Option(help="Queues to serve: `mail:10,default`.")]
_Concurrency = Annotated[int | None, typer.Option(help="Jobs to run at once.", min=1)]
_Drain = Annotated[str | None, typer.Option(help="Seconds from SIGTERM to the end: `25s` or `25`.")]
_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]


def api(
    *,
    host: _Host = None,
    port: _Port = None,
    admin_port: _AdminPort = None,
    also: Annotated[str | None, typer.Option("--with", help="Roles beside the API: `worker,relay,scheduler`.")] = None,
    db: _Db = None,
) -> None:
    """Serve the HTTP API."""
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    settings = _with_binds(settings, host=host, port=port, admin_port=admin_port)
    _run(settings, ("api", *_roles(also or "")))


def worker(
    *,
    queues: _Queues = None,
    concurrency: _Concurrency = None,
    drain_timeout: _Drain = None,
    processes: Annotated[int | None, typer.Option(help="Worker processes to start and keep.", min=1, max=256)] = None,
    admin_port: _AdminPort = None,
    db: _Db = None,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run jobs."""
    from ..settings import Settings

    settings = Settings.read(
        database_url=db,
        queues=queues,
        concurrency=concurrency,
        drain_seconds=_seconds(drain_timeout),
        processes=processes,
    )
    settings = _with_binds(settings, admin_port=admin_port)
    if settings.processes == 1:
        _run(settings, ("worker",), lifeline=lifeline)
        return
    flags = {"--db": db, "--queues": queues, "--concurrency": concurrency, "--drain-timeout": drain_timeout}
    given = ((flag, str(value)) for flag, value in flags.items() if value is not None)
    _run_parent(settings, [word for pair in given for word in pair])


def relay(*, drain_timeout: _Drain = None, admin_port: _AdminPort = None, db: _Db = None) -> None:
    """Publish what your application staged in its own transactions."""
    from ..settings import Settings

    settings = Settings.read(database_url=db, drain_seconds=_seconds(drain_timeout))
    _run(_with_binds(settings, admin_port=admin_port), ("relay",))


def scheduler(*, drain_timeout: _Drain = None, admin_port: _AdminPort = None, db: _Db = None) -> None:
    """Enqueue the jobs of schedules when they are due."""
    from ..settings import Settings

    settings = Settings.read(database_url=db, drain_seconds=_seconds(drain_timeout))
    _run(_with_binds(settings, admin_port=admin_port), ("scheduler",))


def run(
    *,
    roles: Annotated[str, typer.Option(help="Roles of this process: `api,worker,relay,scheduler`.")] = "api,worker",
    host: _Host = None,
    port: _Port = None,
    admin_port: _AdminPort = None,
    db: _Db = None,
) -> None:
    """Run any set of roles in one process."""
    chosen = _roles(roles)
    if not chosen:
        raise SettingsInvalid("--roles names no role", fix="name some of api, worker, relay and scheduler")
    from ..settings import Settings

    settings = Settings.read(database_url=db)
    _run(_with_binds(settings, host=host, port=port, admin_port=admin_port), chosen)


def _run_parent(settings: Settings, flags: list[str]) -> None:
    from ..parent import Parent

    def announce(admin: str) -> None:
        say(f"outlast worker, {settings.processes} processes, is running: admin on {admin}")

    sys.exit(Parent(settings, settings.processes, flags, announce=announce).run())


def _run(settings: Settings, roles: tuple[str, ...], *, lifeline: int | None = None) -> None:
    with loading():
        from ..bootstrap import unserved_queues
        from ..lifecycle.lifeline import Lifeline
        from ..process import Process
        from ..settings import unknown_variables

    for name in unknown_variables():
        say(f"warning: {name} is not a setting and is ignored")
    for name, queue in unserved_queues(settings).items() if "worker" in roles else ():
        say(f"warning: {name} goes to the queue {queue}, which this worker does not serve; OUTLAST_QUEUES may add it")

    parent = None if lifeline is None else Lifeline(lifeline)

    def announce(at: Addresses) -> None:
        if parent is not None:
            parent.announce(at.admin)
            return
        where = f"API on {at.api}, " if at.api else ""
        say(f"outlast {' + '.join(roles)} is running: {where}admin on {at.admin}")

    process = Process(settings, tuple(dict.fromkeys(roles)), announce=announce)
    if parent is not None:
        parent.watch(process.request)
    sys.exit(process.run())


def _roles(text: str) -> tuple[str, ...]:
    from ..process import ROLES

    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in ROLES:
            raise SettingsInvalid(f"there is no role {name!r} in this release", fix=f"choose among {', '.join(ROLES)}")
    return names


def _with_binds(
    settings: Settings, *, host: str | None = None, port: int | None = None, admin_port: int | None = None
) -> Settings:
    return settings.model_copy(
        update={
            "bind": _moved(settings.bind, host, port),
            "admin_bind": _moved(settings.admin_bind, None, admin_port),
        }
    )


def _moved(bind: str, host: str | None, port: int | None) -> str:
    old_host, _, old_port = bind.rpartition(":")
    return f"{old_host if host is None else host}:{old_port if port is None else port}"


def _seconds(text: str | None) -> float | None:
    return None if text is None else seconds(text)
