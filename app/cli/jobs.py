"""`outlast jobs`: enqueue jobs, read them back, cancel and retry them, straight on the store. `runs` has the rest.

`--json` prints the representation of the HTTP API, payloads and results byte for byte.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from ..domain.bulk import BulkAction
from ..domain.errors import JobNotFound, RequestInvalid
from ..domain.job import Enqueued, JobId
from ..domain.snapshot import AttemptView, JobView
from ..domain.state import TERMINAL, State
from ..domain.step import RetryMode, RunView
from .acting import Reason, acting
from .jobs_print import print_attempts, print_document, print_job, print_table
from .many import DryRun, Many, Name, Queue, Since, States, Tenant, Until, Yes, act_on_many, is_many
from .payload import payload_text
from .report import FAILURE, TIMED_OUT, say
from .store import with_jobs, with_runs
from .waterfall import print_waits, print_waterfall, run_facts

if TYPE_CHECKING:
    from ..control.jobs import JobControl
    from ..control.runs import RunControl
    from ..control.timeline import Timeline

jobs = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_Id = Annotated[str, typer.Argument(help="The job's id.")]
_OneOfMany = Annotated[str | None, typer.Argument(help="The job's id; without one, a filter says which jobs.")]
_POLL_SECONDS = 0.2
_ACTOR = "cli"


@jobs.command("list")
def list_jobs(
    *,
    state: Annotated[list[State] | None, typer.Option(help="Only jobs in this state; may be repeated.")] = None,
    name: Annotated[str | None, typer.Option(help="Only this job type.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.", min=1, max=200)] = 50,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """List jobs, newest first."""
    from ..drivers.reading import ListQuery

    query = ListQuery(states=frozenset(state or ()), name=name, queue=queue, tenant=tenant, limit=limit)
    page = with_jobs(db, lambda control: control.list(query))
    if as_json:
        for view in page.items:
            print_document(view, with_payload=False)
    else:
        print_table(page.items)


@jobs.command()
def show(job_id: _Id, *, as_json: _Json = False, db: _Db = None) -> None:
    """Show one job: state, payload, result, error, every attempt, and its life as a timeline."""

    async def read(control: RunControl) -> tuple[tuple[JobView, Timeline], tuple[AttemptView, ...], RunView]:
        wanted = (await _followed(control.jobs, job_id_of(job_id))).id
        drawn, run = await control.timeline(wanted, tenant=None), await control.run(wanted, tenant=None)
        return drawn, await control.jobs.attempts(wanted, tenant=None), run

    (view, timeline), attempts, run = with_runs(db, read)
    if as_json:
        print_document(view, attempts=attempts, answer=run_facts(view, timeline, run))
    else:
        print_job(view)
        print_waits(run)
        print_attempts(attempts)
        print_waterfall(timeline)


@jobs.command()
def enqueue(
    name: Annotated[str, typer.Argument(help="The job type.")],
    *,
    payload: Annotated[str, typer.Option(help="The payload as a JSON object.")] = "",
    param: Annotated[
        list[str] | None, typer.Option("-P", "--param", help="One field: `shop=berlin` (text) or `id:=7` (JSON).")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key.")] = None,
    queue: Annotated[str | None, typer.Option(help="Queue, instead of the job type's.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 (first) to 9.", min=0, max=9)] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds until it may start.", min=0)] = None,
    wait: Annotated[float | None, typer.Option(help="Wait so many seconds for the end; exit code 3 without.")] = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Enqueue a job of a published type."""
    from ..control.jobs import EnqueueRequest

    request = EnqueueRequest(
        name=name,
        payload_text=payload_text(payload, param or []),
        idempotency_key=key,
        queue=queue,
        priority=priority,
        delay=None if delay is None else timedelta(seconds=delay),
        enqueued_by=_ACTOR,
    )

    async def place(control: JobControl) -> tuple[JobView, Enqueued]:
        placed = await control.enqueue(request, tenant=None)
        return await _await_end(control, placed.answer.id, wait or 0.0), placed.answer

    view, answer = with_jobs(db, place)
    if answer.deduped:
        say(f"the key is held by {view.id}; nothing was added")
    if wait is None or as_json:
        show_job(view, as_json=as_json, deduped=answer.deduped, key_expires_at=answer.key_expires_at)
    else:
        print_job(view)
    if wait is not None and view.state not in TERMINAL:
        raise typer.Exit(TIMED_OUT)
    if wait is not None and view.state is not State.DONE:
        raise typer.Exit(FAILURE)


@jobs.command()
def cancel(
    job_id: _OneOfMany = None,
    *,
    state: States = None,
    name: Name = None,
    queue: Queue = None,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Cancel a job for good, whatever it is doing; or all live jobs that fit a filter."""
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
        act_on_many(BulkAction.CANCEL, many)
        return
    wanted, by, why = job_id_of(job_id), acting(reason), reason or "cancelled from the command line"
    verdict, view = with_jobs(db, lambda control: control.cancel(wanted, reason=why, tenant=None, by=by))
    say(verdict.value)
    show_job(view, as_json=as_json, verdict=verdict.value)


@jobs.command()
def retry(
    job_id: _OneOfMany = None,
    *,
    state: States = None,
    name: Name = None,
    queue: Queue = None,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="With a new, empty run.")] = False,
    from_step: Annotated[
        str | None, typer.Option(help="Go on from before this step: it and all recorded after it are dropped.")
    ] = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Run a dead or cancelled job again, with fresh budgets; a held one fresh or from a step.

    Or all dead and cancelled jobs that fit a filter, each going on from what its run has recorded.
    """
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
        if fresh or from_step is not None:
            raise RequestInvalid("many jobs are retried from where they are", fix="leave --fresh and --from-step out")
        act_on_many(BulkAction.RETRY, many)
        return
    mode = RetryMode.FRESH if fresh else RetryMode.RESUME
    wanted, by = job_id_of(job_id), acting(reason)
    view = with_jobs(db, lambda control: control.retry(wanted, mode=mode, from_step=from_step, tenant=None, by=by))
    show_job(view, as_json=as_json)


def show_job(view: JobView, *, as_json: bool, **answer: object) -> None:
    """Print a job; `answer` is what the action itself found, a part of the document only."""
    if as_json:
        print_document(view, answer=answer)
    else:
        print_table((view,))


async def _followed(control: JobControl, job_id: JobId) -> JobView:
    """Give a job, or the one that the key of a staged id led to; an action names that one and leaves it alone."""
    try:
        return await control.describe(job_id, tenant=None)
    except JobNotFound as absent:
        existing = absent.details.get("existing_id")
        if not isinstance(existing, UUID):
            raise
        say(absent.cause)
        return await control.describe(JobId(existing), tenant=None)


async def _await_end(control: JobControl, job_id: JobId, seconds: float) -> JobView:
    import asyncio

    clock = asyncio.get_running_loop()
    deadline = clock.time() + seconds
    while True:
        view = await control.describe(job_id, tenant=None)
        left = deadline - clock.time()
        if view.state in TERMINAL or left <= 0:
            return view
        await asyncio.sleep(min(_POLL_SECONDS, left))


def job_id_of(text: str) -> JobId:
    """Read the id of a job. Raises `JOB_NOT_FOUND` for a text that is none."""
    try:
        return JobId(UUID(text))
    except ValueError as exc:
        raise JobNotFound(f"{text!r} is not a job id", fix="give the id that `outlast jobs list` shows") from exc
