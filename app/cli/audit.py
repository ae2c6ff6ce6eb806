"""`outlast audit`: what operators did to what, and why, straight on the store."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..domain.audit import Action, AuditQuery, AuditView, Target
from .instants import instant_of
from .jobs_print import print_rows, time_of
from .report import say
from .store import with_audit

audit = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_COLUMNS = ("at", "actor", "action", "target", "outcome", "reason")


@audit.callback()
def _group() -> None:
    """Keep `list` a name of its own."""


@audit.command("list")
def list_audit(
    *,
    target: Annotated[str | None, typer.Option(help="Only this job, queue, worker or schedule.")] = None,
    kind: Annotated[Target | None, typer.Option(help="Only this kind of target.")] = None,
    action: Annotated[Action | None, typer.Option(help="Only this action.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this one did.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant, and what belongs to nobody alone.")] = None,
    since: Annotated[str | None, typer.Option(help="Not before this time: `2026-10-25T00:00:00Z`.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.", min=1, max=200)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")] = False,
    db: _Db = None,
) -> None:
    """List what operators did, newest first."""
    query = AuditQuery(
        actor=actor,
        action=action,
        target_kind=kind,
        target=target,
        tenant=tenant,
        since=None if since is None else instant_of(since, "--since"),
        until=None if until is None else instant_of(until, "--until"),
        limit=limit,
    )
    rows = with_audit(db, lambda control: control.newest(query))
    if as_json:
        for row in rows:
            _print_json(row)
    elif rows:
        print_rows((_COLUMNS, *(_row(row) for row in rows)))
    else:
        say("nobody did anything like that")


def _row(row: AuditView) -> tuple[str, ...]:
    target = f"{row.target_kind} {row.target or ''}".rstrip()
    return (time_of(row.at), row.actor, row.action, target, row.outcome, row.reason or "-")


def _print_json(row: AuditView) -> None:
    from ..control.audit import audit_document
    from ..control.render import render

    sys.stdout.write(render(audit_document(row)).decode() + "\n")
