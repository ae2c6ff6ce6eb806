"""`outlast jobs cancel|retry|delete` on all jobs that fit a filter: counted, confirmed, made, worked off, followed.

The operation is in the store: whoever follows it helps the workers with it, and leaving it alone ends nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ..domain.bulk import BulkAction, BulkId, BulkState, BulkView, ErrorKind, JobFilter
from ..domain.errors import RequestInvalid
from ..domain.state import State
from .acting import acting
from .instants import instant_of
from .jobs_print import print_rows
from .progress import Progress
from .report import FAILURE, say
from .store import with_bulk

if TYPE_CHECKING:
    from ..control.bulk import BulkControl, BulkRequest, BulkShown

INTERRUPTED = 130
_IDLE_SECONDS = 0.2
_PAST = {BulkAction.CANCEL: "cancelled", BulkAction.RETRY: "retried", BulkAction.DELETE: "deleted"}

States: TypeAlias = Annotated[list[State] | None, typer.Option("--state", help="All jobs in this state; repeatable.")]
Name: TypeAlias = Annotated[str | None, typer.Option("--name", help="All jobs of this type.")]
Queue: TypeAlias = Annotated[str | None, typer.Option("--queue", help="All jobs of this queue.")]
Tenant: TypeAlias = Annotated[str | None, typer.Option("--tenant", help="All jobs of this tenant.")]
Since: TypeAlias = Annotated[
    str | None, typer.Option("--since", help="Enqueued then or later: `2026-10-25T00:00:00Z`; else of the last 7 days.")
]
Until: TypeAlias = Annotated[str | None, typer.Option("--until", help="Enqueued earlier than that.")]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only say how many jobs it would be.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """The jobs that a command line names by a filter, and how it is to be gone about."""

    states: Sequence[State] | None
    name: str | None
    queue: str | None
    tenant: str | None
    since: str | None
    until: str | None
    dry_run: bool
    yes: bool
    reason: str | None
    as_json: bool
    db: str | None
    error: ErrorKind | None = None

    @property
    def is_named(self) -> bool:
        """Say whether there is a filter at all."""
        return any((self.states, self.name, self.queue, self.tenant, self.since, self.until))

    def jobs(self) -> JobFilter:
        """Give the filter."""
        return JobFilter(
            states=frozenset(self.states or ()),
            name=self.name,
            queue=self.queue,
            created_after=None if self.since is None else instant_of(self.since, "--since"),
            created_before=None if self.until is None else instant_of(self.until, "--until"),
            error=self.error,
        )


def is_many(job_id: str | None, many: Many) -> bool:
    """Say whether a command is about many jobs.

    Raises:
        RequestInvalid: it names one job and a filter, or neither.
    """
    if job_id is None and not many.is_named:
        raise RequestInvalid(
            "no job is named", fix="give a job's id, or say which jobs: --state, --name, --queue, --since"
        )
    if job_id is not None and (many.is_named or many.dry_run):
        raise RequestInvalid("a job's id and a filter exclude each other", fix="leave one of them out")
    return job_id is None


def act_on_many(action: BulkAction, many: Many) -> None:
    """Count the jobs, ask, make the operation and follow it to its end; exit code 1 when it failed on some."""
    from ..control.bulk import BulkRequest
    from ..control.bulk_documents import count_document, notice_of

    request = BulkRequest(action=action, by=acting(many.reason), jobs=many.jobs(), tenant=many.tenant)
    counted = with_bulk(many.db, lambda control: control.count(request))
    notice = notice_of(request.jobs)
    if notice is not None:
        say(notice)
    if many.dry_run:
        if many.as_json:
            print_json(count_document(counted.bulk, counted.count, notice=notice))
        else:
            say(f"jobs that would be {_PAST[action]}:")
            print(counted.count)
        return
    if not counted.count:
        say(f"no jobs to be {_PAST[action]}")
        return
    if not many.yes:
        _ask(action, counted.count)
    made = with_bulk(many.db, lambda control: control.make(_expecting(request, counted.count)))
    follow(made, db=many.db, as_json=many.as_json)


def follow(view: BulkView, *, db: str | None, as_json: bool) -> None:
    """Work an operation off until it has ended, and say what came of it; Ctrl-C leaves it to the workers."""
    progress = Progress(view.selected, "jobs")
    try:
        shown = with_bulk(db, lambda control: _worked_off(control, view.id, progress))
    except KeyboardInterrupt:
        progress.end()
        say(
            f"the operation goes on in the workers: `outlast bulk follow {view.id}` goes on following it,"
            f" `outlast bulk abort {view.id}` stops it"
        )
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.end()
    show(shown, as_json=as_json)
    if shown.view.failed or shown.view.state is BulkState.ABORTED:
        raise typer.Exit(FAILURE)


def show(shown: BulkShown, *, as_json: bool) -> None:
    """Print an operation: as JSON, or as its counts and the first jobs that failed."""
    from ..control.bulk_documents import bulk_document, message_of

    view = shown.view
    if as_json:
        print_json(bulk_document(view, shown.errors))
        return
    print(
        f"{view.id}  {view.action}  {view.state}  {view.done:,} done, {view.changed:,} changed since,"
        f" {view.failed:,} failed, {view.left:,} left of {view.selected:,}"
    )
    if shown.errors:
        print_rows([(str(item.job_id), item.code or "", message_of(item)) for item in shown.errors])


def print_json(document: dict[str, object]) -> None:
    """Print a document on one line."""
    from ..control.render import render

    sys.stdout.write(render(document).decode() + "\n")


async def _worked_off(control: BulkControl, bulk_id: BulkId, progress: Progress) -> BulkShown:
    async for step in control.work_off(bulk_id):
        if step is not None:
            progress.show(step.view.selected - step.view.left)
        if step is None or not step.has_decided:
            await asyncio.sleep(_IDLE_SECONDS)
    return await control.find(bulk_id, tenant=None)


def _ask(action: BulkAction, count: int) -> None:
    if not sys.stdin.isatty():
        raise RequestInvalid(f"{count:,} jobs would be {_PAST[action]}, and there is nobody to ask", fix="say --yes")
    typer.confirm(f"{action.capitalize()} {count:,} jobs?", abort=True, err=True)


def _expecting(request: BulkRequest, count: int) -> BulkRequest:
    from dataclasses import replace

    return replace(request, expected_count=count)
