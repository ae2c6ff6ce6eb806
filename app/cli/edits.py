"""More of `outlast jobs`: running a job now, changing, deleting and duplicating it, straight on the store."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..domain.bulk import BulkAction
from ..domain.edit import JobPatch
from ..domain.errors import RequestInvalid
from .acting import Reason, acting
from .instants import instant_of
from .jobs import job_id_of, show_job
from .many import DryRun, Many, Name, Queue, Since, States, Tenant, Until, Yes, act_on_many, is_many
from .payload import payload_text
from .report import say
from .store import with_jobs

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_Id = Annotated[str, typer.Argument(help="The job's id.")]
_IfMatch = Annotated[
    str | None, typer.Option(help="Only while the job's `version` is this one; `jobs show --json` shows it.")
]


def run_now(job_id: _Id, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """Let a delayed job start now, or end the sleeps of its run."""
    wanted, by = job_id_of(job_id), acting(reason)
    verdict, view = with_jobs(db, lambda control: control.run_now(wanted, tenant=None, by=by))
    say(verdict.value)
    show_job(view, as_json=as_json, verdict=verdict.value)


def change(
    job_id: _Id,
    *,
    priority: Annotated[int | None, typer.Option(help="0 (first) to 9.", min=0, max=9)] = None,
    run_at: Annotated[str | None, typer.Option(help="Another time: `2026-10-25T00:00:00Z`.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="All of its tags from now on; may be repeated.")] = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Take its tags away.")] = False,
    max_attempts: Annotated[int | None, typer.Option(help="Its budget of counted failures.", min=1)] = None,
    if_match: _IfMatch = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Change a job that waits: its priority, time, tags or budget."""
    if tag and no_tags:
        raise RequestInvalid("--tag and --no-tags exclude each other", fix="say which tags it is to have")
    patch = JobPatch(
        priority=priority,
        run_at=None if run_at is None else instant_of(run_at, "--run-at"),
        tags=() if no_tags else tuple(tag) if tag else None,
        max_attempts=max_attempts,
    )
    wanted, by, versions = job_id_of(job_id), acting(reason), _versions(if_match)
    view = with_jobs(db, lambda control: control.patch(wanted, patch, versions=versions, by=by))
    show_job(view, as_json=as_json)


def delete(
    job_id: Annotated[str | None, typer.Argument(help="The job's id; without one, a filter says which jobs.")] = None,
    *,
    state: States = None,
    name: Name = None,
    queue: Queue = None,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    if_match: _IfMatch = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Delete a job that has ended or is held, with all that is known of it; or all such jobs that fit a filter."""
    many = Many(
        states=state,
        name=name,
        queue=queue,
        tenant=tenant,
        since=since,
        until=until,
        dry_run=dry_run,
        yes=yes,
        reason=reason,
        as_json=as_json,
        db=db,
    )
    if is_many(job_id, many) or job_id is None:
        if if_match is not None:
            raise RequestInvalid("--if-match is about one job", fix="leave it out")
        act_on_many(BulkAction.DELETE, many)
        return
    wanted, by, versions = job_id_of(job_id), acting(reason), _versions(if_match)
    if not yes:
        if not sys.stdin.isatty():
            raise RequestInvalid("deleting a job cannot be undone, and there is nobody to ask", fix="say --yes")
        typer.confirm(f"Delete {wanted} for good?", abort=True, err=True)
    with_jobs(db, lambda control: control.delete(wanted, versions=versions, by=by))
    say(f"{wanted} is deleted")


def duplicate(
    job_id: _Id,
    *,
    patch: Annotated[str, typer.Option(help="A JSON merge patch for the payload.")] = "",
    param: Annotated[
        list[str] | None, typer.Option("-P", "--param", help="One field: `shop=berlin` (text) or `id:=7` (JSON).")
    ] = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Run a job's work again as a new job, with its payload or a changed one."""
    wanted, by = job_id_of(job_id), acting(reason)
    edit = payload_text(patch, param or []) if patch or param else None
    show_job(with_jobs(db, lambda control: control.duplicate(wanted, input_patch=edit, by=by)), as_json=as_json)


def _versions(if_match: str | None) -> frozenset[str] | None:
    return None if if_match is None else frozenset({if_match.strip('"').partition(".")[0]})
