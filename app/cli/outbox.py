"""`outlast outbox`: what is staged and not published, and another try for what was refused."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from ..domain.errors import NotFound, RequestInvalid
from ..domain.outbox import MOST_COUNTED, OutboxId, OutboxView
from .acting import Reason, actor
from .jobs_print import safe
from .report import say
from .store import with_outbox

if TYPE_CHECKING:
    from ..control.outbox import OutboxControl

outbox = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]


@outbox.command()
def status(
    *,
    limit: Annotated[int, typer.Option(help="Quarantined rows to show, newest first.", min=0, max=1_000)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    db: _Db = None,
) -> None:
    """Show how much waits to be published, for how long, and what was refused."""
    from ..control.render import render
    from ..control.represent import outbox_document

    view = with_outbox(db, lambda control: control.view(limit))
    if as_json:
        sys.stdout.write(render(outbox_document(view)).decode() + "\n")
    else:
        _print(view)


@outbox.command()
def replay(
    row_ids: Annotated[list[str] | None, typer.Argument(help="Rows to stage again.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every quarantined row but those that are too old.")] = False,
    may_double: Annotated[
        bool, typer.Option("--may-double", help="Also rows that are too old: they may become a second job.")
    ] = False,
    reason: Reason = None,
    db: _Db = None,
) -> None:
    """Stage quarantined rows again, once what refused them is mended."""
    if bool(row_ids) == every:
        raise RequestInvalid("name rows, or --all", fix="list them with `outlast outbox status`")
    if may_double and every:
        raise RequestInvalid(
            "--may-double is for rows that are named", fix="name each row that may become a second job"
        )
    ids = None if every else [_row_id(text) for text in row_ids or ()]

    async def stage_again(control: OutboxControl) -> int:
        return await control.replay(ids, may_double=may_double, by=actor(), reason=reason)

    count = with_outbox(db, stage_again)
    if ids is not None and count < len(set(ids)):
        raise NotFound(
            f"{len(set(ids)) - count} of {len(set(ids))} rows are not in quarantine, or too old; "
            f"{count} are staged again",
            fix="see `outlast outbox status`; one that is too old needs --may-double, and may become a second job",
        )
    say(f"{count} staged again")


def _print(view: OutboxView) -> None:
    lag = f", the oldest for {view.lag.total_seconds():.1f} s" if view.oldest_at else ""
    print(f"staged {_count(view.staged)}, claimed {_count(view.claimed)}{lag}")
    if view.deferred:
        print(f"deferred {_count(view.deferred)}, their queues are full")
    print(f"quarantined {_count(view.quarantined)}")
    for item in view.items:
        print(f"{item.id}  {item.name}  {item.code or 'too old'}  {safe(item.message)}")


def _count(value: int) -> str:
    return f"{value:,}+" if value >= MOST_COUNTED else str(value)


def _row_id(text: str) -> OutboxId:
    try:
        return OutboxId(UUID(text))
    except ValueError as exc:
        raise RequestInvalid(
            f"{text[:64]!r} is not the id of a row", fix="copy it from `outlast outbox status`"
        ) from exc
