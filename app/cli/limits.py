"""`outlast limits`: who holds slots, the numbers in force and setting them, and taking back what is held for nothing.

Straight on the store. `--json` prints the representation of the HTTP API.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .acting import Reason, acting
from .jobs_print import print_rows
from .report import say
from .store import with_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..control.render import Document

limits = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_Name = Annotated[str | None, typer.Option(help="Only this job type.")]
_LIMITS = ("name", "limit", "n", "declared", "per_ms", "set_by", "held", "waiting")
_SLOTS = ("name", "limit", "key", "job_id", "claim_no", "worker_id", "taken_at", "is_open")


@limits.command("list")
def list_limits(*, name: _Name = None, as_json: _Json = False, db: _Db = None) -> None:
    """List the limits in force, with how many slots are held and how many jobs wait for one."""
    from ..control.limits import limit_document

    found = with_limits(db, lambda control: control.limits(name))
    _show([limit_document(limit) for limit in found], _LIMITS, as_json=as_json, nothing="no limits")


@limits.command("slots")
def list_slots(
    *,
    name: _Name = None,
    most: Annotated[int, typer.Option("--limit", help="At most so many, by their jobs.", min=1, max=200)] = 50,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """List the slots that are held now."""
    from ..control.limits import slot_document
    from ..domain.limit import SlotQuery

    found = with_limits(db, lambda control: control.slots(SlotQuery(name=name, limit=most)))
    _show([slot_document(slot) for slot in found], _SLOTS, as_json=as_json, nothing="no slots are held")


@limits.command("set")
def set_limit(
    name: Annotated[str, typer.Argument(help="The job type.")],
    limit: Annotated[str, typer.Argument(help="The limit's name; `rate` is the type's rate.")],
    n: Annotated[str, typer.Argument(help="How many there may be, or `declared` for what the code says.")],
    *,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Put a number in the place of the declared one, for all workers at once."""
    from ..control.limits import limit_document

    number = None if n == "declared" else _number(n)
    stored = with_limits(db, lambda control: control.set(name, limit, number, by=acting(reason)))
    _show([limit_document(stored)], _LIMITS, as_json=as_json, nothing="")


@limits.command("release")
def release(
    job_id: Annotated[str, typer.Argument(help="The job whose body does not end.")],
    *,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Take back the slots that closed attempts of a job still hold; its body may run on beside the next."""
    from ..control.limits import slot_document
    from ..http.routers.jobs import parse_job_id

    wanted = parse_job_id(job_id)
    taken = with_limits(db, lambda control: control.release(wanted, by=acting(reason)))
    _show([slot_document(slot) for slot in taken], _SLOTS, as_json=as_json, nothing="")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither a whole number nor `declared`")
    return int(text)


def _show(documents: Sequence[Document], columns: tuple[str, ...], *, as_json: bool, nothing: str) -> None:
    from ..control.render import render

    if as_json:
        for document in documents:
            sys.stdout.write(render(document).decode() + "\n")
    elif documents:
        print_rows((columns, *(tuple(_word(document[column]) for column in columns) for document in documents)))
    else:
        say(nothing)


def _word(value: object) -> str:
    return "-" if value is None else "all" if value == "" else str(value)
