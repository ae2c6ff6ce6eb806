"""`outlast bulk`: bulk operations as they stand, what became of each job, and their abort, straight on the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from ..domain.bulk import BulkId, BulkItem, BulkVerdict, BulkView, unknown_operation
from .acting import Reason, acting
from .jobs_print import print_rows, time_of
from .many import follow, print_json, show
from .report import say
from .store import with_bulk

if TYPE_CHECKING:
    from ..control.bulk import BulkControl

bulk = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_Id = Annotated[str, typer.Argument(help="The operation's id.")]
_COLUMNS = ("id", "action", "state", "by", "jobs", "done", "changed", "failed", "created")


@bulk.command("list")
def list_operations(
    *,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.", min=1, max=200)] = 20,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """List bulk operations, newest first."""
    from ..control.bulk_documents import bulk_document

    views = with_bulk(db, lambda control: control.list(limit=limit, before=None, tenant=None))
    if as_json:
        for view in views:
            print_json(bulk_document(view))
        return
    if not views:
        say("no bulk operations")
        return
    print_rows([_COLUMNS, *(_row(view) for view in views)])


@bulk.command("show")
def show_operation(
    bulk_id: _Id,
    *,
    verdict: Annotated[
        list[BulkVerdict] | None, typer.Option(help="Also the jobs that came to this; repeatable.")
    ] = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Show how far an operation is, and the first jobs it failed on; with --verdict every job that came to it."""
    from ..control.bulk_documents import item_document, message_of

    wanted = _id_of(bulk_id)
    show(with_bulk(db, lambda control: control.find(wanted, tenant=None)), as_json=as_json)
    if not verdict:
        return
    items = with_bulk(db, lambda control: _items(control, wanted, verdict))
    if as_json:
        for item in items:
            print_json(item_document(item))
    elif items:
        print_rows([(str(item.job_id), item.verdict or "", _why(item, message_of(item))) for item in items])


@bulk.command("follow")
def follow_operation(bulk_id: _Id, *, as_json: _Json = False, db: _Db = None) -> None:
    """Follow an operation to its end, and help the workers with it."""
    wanted = _id_of(bulk_id)
    follow(with_bulk(db, lambda control: control.find(wanted, tenant=None)).view, db=db, as_json=as_json)


@bulk.command("abort")
def abort_operation(bulk_id: _Id, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """Stop an operation behind the batch at hand; what it has done stays done."""
    wanted, by = _id_of(bulk_id), acting(reason)
    show(with_bulk(db, lambda control: control.abort(wanted, by=by, tenant=None)), as_json=as_json)


async def _items(control: BulkControl, bulk_id: BulkId, verdicts: list[BulkVerdict]) -> list[BulkItem]:
    found: list[BulkItem] = []
    while True:
        after = found[-1].job_id if found else None
        page = await control.items(bulk_id, verdicts=verdicts, after=after, limit=1_000, tenant=None)
        if not page:
            return found
        found += page


def _row(view: BulkView) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (view.selected, view.done, view.changed, view.failed))
    return (str(view.id), view.action.value, view.state.value, view.by, *counts, time_of(view.created_at))


def _why(item: BulkItem, message: str) -> str:
    return (item.detail or "") if item.verdict is BulkVerdict.DONE else message


def _id_of(text: str) -> BulkId:
    try:
        return BulkId(UUID(text))
    except ValueError as exc:
        raise unknown_operation(text) from exc
