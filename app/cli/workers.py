"""`outlast workers`: which workers there are and how far each is with leaving; and letting one leave, by its id.

Straight on the store, wherever the workers run. `--json` prints the representation of the HTTP API.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

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
_ACTOR = "cli"


@workers.command("list")
def list_workers(*, as_json: _Json = False, db: _Db = None) -> None:
    """List live workers and those that left in the last hour, newest first."""
    _show(with_fleet(db, lambda fleet: fleet.workers()), as_json=as_json)


@workers.command("drain")
def drain_worker(
    worker_id: Annotated[str, typer.Argument(help="The worker's id.")],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has left; exit code 3 without.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 60.0,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Let a worker leave, as SIGTERM would, wherever it runs; it begins at its next renewal."""

    async def ask(fleet: FleetControl) -> WorkerView:
        view = await fleet.drain(worker_id, by=_ACTOR)
        return await _left(fleet, view, timeout) if wait else view

    view = with_fleet(db, ask)
    _show((view,), as_json=as_json)
    if wait and not _has_left(view):
        say(f"still there after {timeout:g} s")
        raise typer.Exit(TIMED_OUT)


async def _left(fleet: FleetControl, view: WorkerView, seconds: float) -> WorkerView:
    """Look until the worker has left or the time is over."""
    import asyncio

    deadline = time.monotonic() + seconds
    while not _has_left(view) and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
        # One that is not listed any more left more than an hour ago: nobody has waited that long for it.
        view = next((one for one in await fleet.workers() if one.id == view.id), view)
    return view


def _has_left(view: WorkerView) -> bool:
    return view.closed_at is not None or view.lost_at is not None


def _show(views: Sequence[WorkerView], *, as_json: bool) -> None:
    from ..control.render import render
    from ..control.represent import worker_document

    if as_json:
        for view in views:
            sys.stdout.write(render(worker_document(view)).decode() + "\n")
        return
    if not views:
        say("no workers")
        return
    print_rows((_COLUMNS, *(_row(worker_document(view)) for view in views)))


def _row(document: Mapping[str, object]) -> tuple[str, ...]:
    queues = document["queues"]
    named = ",".join(map(str, queues)) if isinstance(queues, list) else ""
    facts = (document["id"], document["host"], document["pid"], document["code_version"], named, document["running"])
    return (*map(str, facts), f"{document['heartbeat_age_ms']} ms", _state(document))


def _state(document: Mapping[str, object]) -> str:
    if document["lost_at"] is not None:
        return "lost"
    if document["closed_at"] is not None:
        return "left"
    if document["drain_phase"] is not None:
        # A loop that is blocked cannot show why it drains.
        return f"draining ({document['drain_phase']}): {document['drain_reason'] or 'its loop is blocked'}"
    return "running" if document["drain_asked_by"] is None else f"asked to drain by {document['drain_asked_by']}"
