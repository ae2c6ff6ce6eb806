"""`outlast schedules`: what is due when, what became of it, and what an operator may do about it.

Straight on the store, wherever the schedulers run. `--json` prints the representation of the HTTP API.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ..domain.audit import Acting
from ..domain.errors import ScheduleInvalid
from .acting import Reason, actor
from .durations import instant
from .jobs_print import print_rows, safe
from .report import USAGE, fail, say
from .store import with_schedules

schedules = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Name = Annotated[str, typer.Argument(help="The schedule's name.")]
_Count = Annotated[int, typer.Option("--count", "-n", help="How many times to show.", min=1, max=100)]
_COLUMNS = ("name", "cron", "zone", "job", "next", "last", "state")
_MARKS = {"moved": "moved out of skipped time", "first": "first of two", "second": "second of two"}


@schedules.command("list")
def list_schedules(*, as_json: _Json = False, db: _Db = None) -> None:
    """List schedules with their next times and last outcomes."""
    documents = with_schedules(db, lambda control: control.list())
    if as_json:
        for document in documents:
            _print_json(document)
    elif documents:
        print_rows((_COLUMNS, *(_row(document) for document in documents)))
    else:
        say("no schedules; a scheduler whose modules declare some makes them known")


@schedules.command("next")
def next_times(name: _Name, *, count: _Count = 5, as_json: _Json = False, db: _Db = None) -> None:
    """Show when a schedule is due next, and what became of its last times."""
    document: Mapping[str, Any] = with_schedules(db, lambda control: control.find(name, fires=count))
    if as_json:
        _print_json(document)
        return
    print(f"{document['description']}  ({safe(document['cron'])}, {document['tz']})")
    if not document["next_fires"]:
        say("nothing is due: it is paused" if document["is_paused"] else "nothing is due: no scheduler declares it")
    _print_fires(document["next_fires"])
    for row in document["occurrences"]:
        print(f"{_instant(row['at'])}  {row['outcome']}  {row['job_id'] or '-'}  {safe(row['why'] or '')}".rstrip())


@schedules.command("preview")
def preview(
    cron: Annotated[str, typer.Argument(help="The expression: `30 9 * * MON-FRI`.")],
    *,
    tz: Annotated[str, typer.Option("--tz", help="A zone of the IANA database.")] = "UTC",
    count: _Count = 5,
    after: Annotated[str | None, typer.Option(help="Times after this one: `2026-10-25T00:00:00Z`.")] = None,
    as_json: _Json = False,
) -> None:
    """Say what an expression means and when it holds; asks no database."""
    from ..control.schedules import preview_document

    since = datetime.now(UTC) if after is None else instant(after, flag="--after")  # noqa: TID251 - there is no store to ask
    try:
        document: Mapping[str, Any] = preview_document(cron, tz, count=count, after=since)
    except ScheduleInvalid as error:
        fail(f"{error.code}: {error.cause}", fix=error.fix)
        raise typer.Exit(USAGE) from error
    if as_json:
        _print_json(document)
        return
    print(f"{document['description']}  ({document['cron']}, {document['tz']})")
    _print_fires(document["fires"])


@schedules.command("trigger")
def trigger(name: _Name, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """Enqueue the job of a schedule now; its next times stay."""
    from ..control.schedules import occurrence_document

    decided = with_schedules(
        db, lambda control: control.fire(name, by=Acting(actor=actor(), reason=reason), tenant=None)
    )
    if as_json:
        _print_json(occurrence_document(decided))
    else:
        print(decided.job_id)
    if decided.why is not None:
        say("its key led to a job that was there")


@schedules.command("pause")
def pause(
    name: _Name,
    *,
    reason: Annotated[str | None, typer.Option(help="Shown wherever the pause is.")] = None,
    db: _Db = None,
) -> None:
    """Skip what comes due from now on; the first pause stands."""
    with_schedules(db, lambda control: control.pause(name, by=actor(), reason=reason))
    say(f"{name} is paused")


@schedules.command("resume")
def resume(name: _Name, *, reason: Reason = None, db: _Db = None) -> None:
    """Let a schedule fire again from now on; nothing is caught up."""
    with_schedules(db, lambda control: control.resume(name, by=actor(), reason=reason))
    say(f"{name} is not paused")


def _row(document: Mapping[str, Any]) -> tuple[str, ...]:
    fires, rows = document["next_fires"], document["occurrences"]
    last = f"{rows[0]['outcome']} {_instant(rows[0]['at'])}" if rows else "-"
    state = "paused" if document["is_paused"] else "active" if document["is_declared"] else "not declared"
    names = (document["name"], document["cron"], document["tz"], str(document["job"]))
    return (*names, _instant(fires[0]["at"]) if fires else "-", last, state)


def _print_fires(fires: Sequence[Mapping[str, Any]]) -> None:
    for fire in fires:
        print(f"{_instant(fire['at'])}  {fire['local']}  {_MARKS.get(fire['dst'], '')}".rstrip())


def _print_json(document: Mapping[str, object]) -> None:
    from ..control.render import render

    sys.stdout.write(render(document).decode() + "\n")


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
