"""`outlast events`: emit an event for runs that wait for it, and list those that were, straight on the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .jobs_print import print_rows, time_of
from .payload import payload_text
from .report import say
from .store import with_events

if TYPE_CHECKING:
    from ..domain.event import Emitted

events = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_COLUMNS = ("id", "name", "key", "tenant", "emitted", "by", "ended waits")
_ACTOR = "cli"


@events.command()
def emit(
    name: Annotated[str, typer.Argument(help="The event's name.")],
    key: Annotated[str, typer.Argument(help="What it is about.")],
    *,
    payload: Annotated[str, typer.Option(help="Its payload as JSON; null without.")] = "",
    param: Annotated[
        list[str] | None, typer.Option("-P", "--param", help="One field: `by=anna` (text) or `limit:=7` (JSON).")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose event it is; the default tenant's without.")] = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Store an event and wake the runs that wait for its name and key."""
    text = payload_text(payload, param) if param else payload or "null"
    emitted: Emitted = with_events(db, lambda control: control.emit(name, key, text, tenant=tenant, by=_ACTOR))
    if as_json:
        from ..control.render import render

        sys.stdout.write(render({"id": emitted.id, "matched": emitted.matched}).decode() + "\n")
    else:
        print(emitted.id)
        say(f"{emitted.matched} {'wait' if emitted.matched == 1 else 'waits'} ended")


@events.command("list")
def list_events(
    *,
    name: Annotated[str | None, typer.Option(help="Only events of this name.")] = None,
    key: Annotated[str | None, typer.Option(help="Only events about this.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.", min=1, max=200)] = 50,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """List events, newest first."""
    from ..domain.event import EventQuery

    query = EventQuery(tenant=tenant, name=name, key=key, limit=limit)
    found = with_events(db, lambda control: control.list(query))
    if as_json:
        from ..control.render import render
        from ..control.run_documents import event_document

        for event in found:
            sys.stdout.write(render(event_document(event, with_payload=True)).decode() + "\n")
    elif not found:
        say("no events")
    else:
        print_rows([
            _COLUMNS,
            *(
                (
                    *(str(event.id), event.name, event.key, event.tenant),
                    *(time_of(event.emitted_at), event.emitted_by or "", str(event.matched)),
                )
                for event in found
            ),
        ])  # fmt: skip
