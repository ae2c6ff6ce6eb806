"""`outlast jobs explain`: why is this job not running, straight on the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .jobs import job_id_of
from .jobs_print import safe
from .store import with_jobs

if TYPE_CHECKING:
    from ..domain.reason import Explanation

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def explain(
    job_id: Annotated[str, typer.Argument(help="The job's id.")], *, as_json: _Json = False, db: _Db = None
) -> None:
    """Say why a job is not running, the strongest reason first, and what would change it."""
    from ..control.explain_documents import explanation_document
    from ..control.render import render

    wanted = job_id_of(job_id)
    explanation = with_jobs(db, lambda control: control.explain(wanted, tenant=None))
    if as_json:
        sys.stdout.write(render(explanation_document(explanation)).decode() + "\n")
    else:
        _print(explanation)


def _print(explanation: Explanation) -> None:
    job = explanation.job
    print(safe(f"{job.id}  {job.name} in {job.queue}: {job.state.value}"))
    for reason in explanation.reasons:
        print(safe(f"  {reason.code.value:<20}{reason.text}"))
        if reason.repair is not None:
            print(safe(f"  {'':<20}fix: {reason.repair}"))
