"""`outlast workers`: which workers there are and how far each is with leaving; and letting one leave, by its id.

Straight on the store, wherever the workers run. `--json` prints the representation of the HTTP API.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .acting import Reason, actor
from .jobs_print import print_rows
from .report import TIMED_OUT, say
from .store import with_fleet

if TYPE_CHECKING:
    from ..control.fleet import FleetControl
    from ..domain.snapshot import WorkerView

workers = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_COLUMNS = ("id", "host", "pid", "version", "queues", "running", "heartbeat", "state")
_POLL_SECONDS = 0.2


@workers.command("list")
def list_workers(*, as_json: _Json = False, db: _Db = None) -> None:
    """List live workers and those that left in the last hour, newest first."""
    views = with_fleet(db, lambda fleet: fleet.workers())
    _show(views, as_json=as_json)
    if not (views or as_json):
        say("no workers")


@workers.command("drain")
def drain_worker(
    worker_id: Annotated[str, typer.Argument(help="The worker's id.")],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has left; exit code 3 without.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 60.0,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Let a worker leave, as SIGTERM would, wherever it runs; it begins at its next renewal."""
    from ..control.fleet import ASK_ITSELF
    from ..domain.errors import DriverUnavailable

    async def ask(fleet: FleetControl) -> None:
        if wait:
            await _wait(fleet, worker_id, timeout, reason=reason, as_json=as_json)
        else:
            _show((await fleet.drain(worker_id, by=actor(), reason=reason),), as_json=as_json)

    try:
        with_fleet(db, ask)
    except DriverUnavailable as error:
        raise DriverUnavailable(error.cause, fix=f"{ASK_ITSELF}; or {error.fix}") from error


async def _wait(fleet: FleetControl, worker_id: str, seconds: float, *, reason: str | None, as_json: bool) -> None:
    """Ask, and look until the worker has left or the time is over; one that is lost has not left."""
    import asyncio

    from ..control.fleet import lost
    from ..domain.drain import DrainAsk

    has_left = await fleet.ask(worker_id, by=actor(), reason=reason) is DrainAsk.LEFT
    deadline = time.monotonic() + seconds
    view = await fleet.find(worker_id)
    while not (has_left or view is None or view.has_left):
        if view.is_lost:
            raise lost(worker_id)
        if time.monotonic() >= deadline:
            _show((view,), as_json=as_json)
            say(f"still there after {seconds:g} s")
            raise typer.Exit(TIMED_OUT)
        await asyncio.sleep(_POLL_SECONDS)
        view = await fleet.find(worker_id)
    # One that is not listed any more left more than an hour ago.
    _show(() if view is None else (view,), as_json=as_json)
    say(f"worker {worker_id} has left")


def _show(views: Sequence[WorkerView], *, as_json: bool) -> None:
    from ..control.render import render
    from ..control.represent import worker_document

    if as_json:
        for view in views:
            sys.stdout.write(render(worker_document(view)).decode() + "\n")
        return
    if views:
        print_rows((_COLUMNS, *(_row(view) for view in views)))


def _row(view: WorkerView) -> tuple[str, ...]:
    facts = (view.id, view.host, view.pid, view.code_version, ",".join(view.queues), view.running)
    return (*map(str, facts), f"{view.heartbeat_age_ms} ms", _state(view))


def _state(view: WorkerView) -> str:
    if view.has_left:
        return "left"
    if view.is_lost:
        return "lost"
    if view.drain_phase is not None:
        # A loop that is blocked cannot show why it drains.
        return f"draining ({view.drain_phase}): {view.drain_reason or 'its loop is blocked'}"
    return "running" if view.drain_asked_by is None else f"asked to drain by {view.drain_asked_by}"
