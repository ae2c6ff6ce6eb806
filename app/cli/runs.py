"""More of `outlast jobs`: following a job, reading its lines, forking and releasing it, straight on the store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.job import JobId
from ..domain.snapshot import AttemptView, JobView
from ..domain.state import State
from ..domain.step import LogLine, ProgressView, StepView
from .acting import Reason, acting
from .jobs import job_id_of, show_job
from .jobs_print import progress_text, safe, time_of
from .report import FAILURE, TIMED_OUT, say
from .store import with_runs

if TYPE_CHECKING:
    from ..control.changes import News
    from ..control.runs import RunControl

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_Id = Annotated[str, typer.Argument(help="The job's id.")]
_POLL_SECONDS = 0.5


def fork(
    job_id: _Id,
    *,
    from_step: Annotated[
        str | None, typer.Option(help="Keep the steps recorded before this one; all of them without.")
    ] = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Make a new job of a job's type and payload that begins with what its run has recorded."""
    wanted, by = job_id_of(job_id), acting(reason)
    show_job(with_runs(db, lambda runs: runs.fork(wanted, from_step=from_step, tenant=None, by=by)), as_json=as_json)


def release(job_id: _Id, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """Make a held job ready for code of any version, its run as it is."""
    wanted, by = job_id_of(job_id), acting(reason)
    show_job(with_runs(db, lambda runs: runs.release(wanted, tenant=None, by=by)), as_json=as_json)


def logs(
    job_id: _Id,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Print the lines that a job's run kept, oldest first."""
    wanted = job_id_of(job_id)

    async def read(runs: RunControl) -> None:
        if not follow:
            for line in (await runs.run(wanted, tenant=None)).lines:
                _print_line(line, as_json=as_json)
            return
        async for one in _news(runs, wanted):
            if isinstance(one.item, LogLine):
                _print_line(one.item, as_json=as_json)

    with_runs(db, read)


def watch(
    job_id: _Id,
    *,
    timeout: Annotated[float | None, typer.Option(help="At most so many seconds; exit code 3 then.", min=0)] = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Print what happens to a job until it has ended; exit code 1 unless it is done."""
    wanted = job_id_of(job_id)

    async def read(runs: RunControl) -> State | None:
        ended: State | None = None
        async with asyncio.timeout(timeout):
            async for one in _news(runs, wanted):
                _print_news(one, wanted, as_json=as_json)
                ended = one.item.state if isinstance(one.item, JobView) else None
        return ended

    try:
        state = with_runs(db, read)
    except TimeoutError:
        say(f"it has not ended after {timeout:g} s")
        raise typer.Exit(TIMED_OUT) from None
    if state is not State.DONE:
        raise typer.Exit(FAILURE)


async def _news(runs: RunControl, job_id: JobId) -> AsyncIterator[News]:
    async with aclosing(runs.follow(job_id, pause=lambda: asyncio.sleep(_POLL_SECONDS))) as looks:
        async for found in looks:
            for one in found:
                yield one


def _print_line(line: LogLine, *, as_json: bool) -> None:
    if as_json:
        from ..control.render import render
        from ..control.run_documents import line_document

        _write(render(line_document(line)).decode())
    else:
        _write(safe(f"{time_of(line.at)}  {line.message}"))


def _print_news(news: News, job_id: JobId, *, as_json: bool) -> None:
    if as_json:
        from ..control.changes import news_document
        from ..control.render import render

        data = news_document(news, job_id, with_value=True)
        _write(render({"event": news.kind, "id": str(news.number), "data": data}).decode())
    elif (line := _said(news)) is not None:
        _write(safe(line).replace("\n", "\\n"))


def _said(news: News) -> str | None:
    match news.item:
        case JobView() as view if news.kind.value == "end":
            return f"ended: {view.state.value}"
        case JobView() as view:
            return f"{view.state.value}" + (f" ({view.state_reason})" if view.state_reason else "")
        case AttemptView() as attempt:
            counted = "counted" if attempt.counted else "not counted"
            return f"attempt {attempt.number}: {attempt.outcome.value} ({attempt.cause}, {counted})"
        case StepView() as step:
            return f"step {step.name}: {step.kind.value}, attempt {step.claim_no}"
        case LogLine() as line:
            return f"log {line.message}"
        case ProgressView() as progress:
            return f"progress {progress_text(progress)}"
        case _:
            return "ended: deleted"


def _write(line: str) -> None:
    """Write a line at once: whoever reads it waits for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
