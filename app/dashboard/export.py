"""A list of jobs as a file: CSV for spreadsheets, one JSON document a line for programs. Never payloads or results.

A cell that a spreadsheet would take for a formula begins with an apostrophe, whoever wrote it. Pure.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from ..control.render import render
from ..control.represent import job_document
from ..domain.snapshot import JobView
from .words import iso

COLUMNS = tuple(
    "id name queue state reason error attempt max_attempts interrupts crashes priority tenant tags created_at run_at"
    " started_at finished_at".split()
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def csv_head() -> bytes:
    """Give the first line of CSV."""
    return _csv([COLUMNS])


def as_csv(jobs: Iterable[JobView]) -> bytes:
    """Give jobs as lines of CSV in UTF-8."""
    return _csv([harmless(cell) for cell in _row(job)] for job in jobs)


def as_ndjson(jobs: Iterable[JobView]) -> bytes:
    """Give jobs as the API's documents, one a line."""
    return b"".join(render(job_document(job, with_payload=False)) + b"\n" for job in jobs)


def harmless(cell: object) -> str:
    """Give a cell as text that no spreadsheet computes."""
    text = "" if cell is None else str(cell)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def _row(job: JobView) -> tuple[object, ...]:
    error, counters = job.error, job.counters
    return (
        *(job.id, job.name, job.queue, job.state.value, job.state_reason),
        None if error is None else error.code or error.type,
        *(counters.attempt, job.max_attempts, counters.interrupts, counters.crashes, job.priority, job.tenant),
        *(" ".join(job.tags), iso(job.created_at), iso(job.run_at), iso(job.started_at), iso(job.finished_at)),
    )
