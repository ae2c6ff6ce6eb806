"""How jobs look in a terminal: a table, one job in full, its attempts; or the API's JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from ..domain.redaction import redacted
from ..domain.snapshot import AttemptView, JobView
from ..domain.step import ProgressView
from .report import say

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}
_BIDI = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}
_SAFE = str.maketrans({**_ESCAPED, **_BIDI})  # what a payload holds must not steer a terminal
_NOTHING: Mapping[str, object] = MappingProxyType({})
_COLUMNS = ("id", "name", "queue", "state", "reason", "attempt", "created")


def print_document(
    view: JobView,
    *,
    with_payload: bool = True,
    attempts: Sequence[AttemptView] | None = None,
    answer: Mapping[str, object] = _NOTHING,
) -> None:
    """Print one job as JSON on one line, with what the action on it answered."""
    from ..control.render import render
    from ..control.represent import attempt_document, job_document

    document = job_document(view, with_payload=with_payload) | dict(answer)
    if attempts is not None:
        document["attempts"] = [attempt_document(attempt) for attempt in attempts]
    sys.stdout.write(render(document).decode() + "\n")


def print_table(views: Sequence[JobView]) -> None:
    """Print jobs as a table, columns as wide as they need."""
    if not views:
        say("no jobs")
        return
    print_rows([_COLUMNS, *(_row(view) for view in views)])


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print a table, columns as wide as they need, each row on one line; its cells do not steer a terminal."""
    shown = [[safe(cell).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_job(view: JobView) -> None:
    """Print one job in full."""
    facts: list[tuple[str, object]] = [
        ("id", view.id),
        ("name", view.name),
        ("state", f"{view.state.value} ({view.state_reason})" if view.state_reason else view.state.value),
        ("queue", f"{view.queue}, priority {view.priority}"),
        ("tenant", view.tenant),
        ("attempt", f"{view.counters.attempt} of {view.max_attempts}"),
        ("crashes", f"{view.counters.crashes} of {view.max_crashes}"),
        ("interrupts", view.counters.interrupts),
        ("created", time_of(view.created_at)),
        ("due", time_of(view.run_at)),
        ("started", time_of(view.started_at)),
        ("finished", time_of(view.finished_at)),
        ("key", view.key),
        ("progress", None if view.progress is None else progress_text(view.progress)),
        ("payload", redacted(view.payload, ())),
        ("result", redacted(view.result, ())),
        ("error", f"{view.error.type}: {view.error.message}" if view.error else None),
    ]
    for label, value in facts:
        if value not in (None, ""):
            print(f"{label:<11}{safe(str(value))}")


def progress_text(progress: ProgressView) -> str:
    """Give how far a run says it has come."""
    return f"{progress.value:.0%}" + (f": {progress.message}" if progress.message else "")


def print_attempts(attempts: Sequence[AttemptView]) -> None:
    """Print the ended attempts, oldest first."""
    for attempt in attempts:
        counted = "counted" if attempt.counted else "not counted"
        error = f": {attempt.error.type}: {attempt.error.message}" if attempt.error else ""
        where = f" on worker {attempt.worker_id} ({attempt.host})" if attempt.worker_id is not None else ""
        how = f"{attempt.outcome.value} ({attempt.cause}, {counted})"
        print(safe(f"attempt {attempt.number}  {time_of(attempt.ended_at)}  {how}{where}{error}"))


def _row(view: JobView) -> tuple[str, ...]:
    return (
        str(view.id),
        view.name,
        view.queue,
        view.state.value,
        view.state_reason or "",
        f"{view.counters.attempt}/{view.max_attempts}",
        time_of(view.created_at),
    )


def time_of(at: datetime | None) -> str:
    """Give a time in UTC to the millisecond, nothing for none."""
    return "" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def safe(text: str) -> str:
    """Give a text without what would steer a terminal."""
    return text.translate(_SAFE)
