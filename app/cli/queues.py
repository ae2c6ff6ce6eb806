"""`outlast queues`: how full queues are, and what an operator may do about it: pause, resume, limit.

Straight on the store; workers need not be told. `--json` prints the representation of the HTTP API.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from ..domain.errors import RequestInvalid
from ..domain.queue import KEEP, QueueChange, Setting
from ..domain.snapshot import QueueView
from ..domain.state import State
from .acting import Reason, actor
from .durations import instant, span
from .jobs_print import print_rows, safe
from .report import say
from .store import with_queues

queues = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Name = Annotated[str, typer.Argument(help="The queue's name.")]
_COLUMNS = ("name", "ready", "delayed", "running", "oldest", "state")
_NONE = "none"
_NAMED = 5


@queues.command("list")
def list_queues(*, as_json: _Json = False, db: _Db = None) -> None:
    """List queues: what waits and runs in each, its limits, and who paused it until when."""
    found = with_queues(db, lambda control: control.list())
    if as_json:
        for queue in found:
            _print_json(queue)
    elif found:
        print_rows((_COLUMNS, *(_row(queue) for queue in found)))
    else:
        say("no queues; one appears with its first job or its first setting")


@queues.command("pause")
def pause(
    name: _Name,
    *,
    until: Annotated[
        str | None, typer.Option(help="When it ends by itself: `2026-11-29T14:00:00Z`, or after `30m`, `2h`, `1d`.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Shown wherever the pause is.")] = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Stop workers from taking jobs of a queue; running ones go on. A pause shortens none that stands already."""
    lasts = None if until is None else span(until)
    ends = None if until is None or lasts is not None else instant(until, flag="--until")
    queue = with_queues(db, lambda control: control.pause(name, by=actor(), reason=reason, until=ends, lasts=lasts))
    _tell(queue, as_json=as_json)


@queues.command("resume")
def resume(name: _Name, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """Let workers take jobs of a queue again."""
    _tell(with_queues(db, lambda control: control.resume(name, by=actor(), reason=reason)), as_json=as_json)


@queues.command("set")
def set_limits(
    name: _Name,
    *,
    concurrency: Annotated[
        str | None, typer.Option(help="How many of its jobs may run in the whole fleet, or `none`.")
    ] = None,
    max_depth: Annotated[
        str | None, typer.Option(help="How many ready and delayed jobs it takes in, or `none`.")
    ] = None,
    fair: Annotated[bool | None, typer.Option("--fair/--no-fair", help="Whether its tenants take turns.")] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weight", help="`TENANT=N`: it gets N starts where others get one; `TENANT=none`; may be given again."
        ),
    ] = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Limit a queue, or let its tenants take turns; what is not named stays as it is."""
    if concurrency is None and max_depth is None and fair is None and not weights:
        raise RequestInvalid(
            "nothing to set",
            fix="name --concurrency N, --max-depth N, either with `none`, --fair, or --weight TENANT=N",
        )
    change = QueueChange(
        concurrency=_setting(concurrency, flag="--concurrency"),
        max_depth=_setting(max_depth, flag="--max-depth"),
        is_fair=KEEP if fair is None else fair,
        weights=dict(_weight(text) for text in weights or ()),
    )
    _tell(with_queues(db, lambda control: control.limit(name, change, by=actor(), reason=reason)), as_json=as_json)


def _setting(text: str | None, *, flag: str) -> Setting:
    if text is None:
        return KEEP
    if text == _NONE:
        return None
    if not text.isdecimal():
        raise RequestInvalid(f"{text[:64]!r} is no number", fix=f"write {flag} 10, or {flag} {_NONE}")
    return int(text)


def _weight(text: str) -> tuple[str, int | None]:
    """Read the weight of a tenant, whose name may have an equals sign in it."""
    tenant, _, weight = text.rpartition("=")
    if not tenant or not (weight == _NONE or weight.isdecimal()):
        raise RequestInvalid(f"{text[:64]!r} is no weight", fix=f"write --weight TENANT=3, or --weight TENANT={_NONE}")
    return tenant, None if weight == _NONE else int(weight)


def _tell(queue: QueueView, *, as_json: bool) -> None:
    if as_json:
        _print_json(queue)
    else:
        say(f"{queue.name}: {_state(queue)}")


def _row(queue: QueueView) -> tuple[str, ...]:
    age = queue.oldest_ready_seconds
    counts = (str(queue.depth.get(state, 0)) for state in (State.READY, State.DELAYED, State.RUNNING))
    return (queue.name, *counts, "-" if age is None else f"{age:.0f} s", _state(queue))


def _state(queue: QueueView) -> str:
    parts = []
    if queue.paused_at is not None:
        end = "" if queue.paused_until is None else f" until {_instant(queue.paused_until)}"
        why = f": {safe(queue.pause_reason)}" if queue.pause_reason else ""
        parts.append(f"paused by {safe(queue.paused_by or '-')}{end}{why}")
    if queue.concurrency is not None:
        parts.append(f"runs at most {queue.concurrency}")
    if queue.max_depth is not None:
        parts.append(f"takes in at most {queue.max_depth}")
    if queue.is_fair:
        named = [f"{safe(tenant)} {weight}" for tenant, weight in list(queue.weights.items())[:_NAMED]]
        more = [f"{len(queue.weights) - _NAMED} more"] if len(queue.weights) > _NAMED else []
        parts.append("tenants take turns" + (f" ({', '.join(named + more)})" if named else ""))
    return ", ".join(parts) or "open"


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print_json(queue: QueueView) -> None:
    from ..control.render import render
    from ..control.represent import queue_document

    sys.stdout.write(render(queue_document(queue)).decode() + "\n")
