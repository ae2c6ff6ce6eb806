"""A run in a terminal: a job's life as bars, what it waits for, and both as JSON.

A bar's place and length are those of the time it took; an hour of sleep leaves a second of work one sign wide. Called
by `outlast jobs show`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..domain.step import RunView, WaitView
from .jobs_print import print_rows, safe, time_of

if TYPE_CHECKING:
    from ..control.render import Document
    from ..control.timeline import Span, Timeline
    from ..domain.snapshot import JobView

_WIDTH = 40
# By the words of the API; what lasts still ends with `>`.
_SIGNS = {"queue": ".", "attempt": "=", "step": "#", "wait": "-", "replay": "|"}
_COLUMNS = ("from", "for", "", "what")
_SECOND = timedelta(seconds=1)


def run_facts(view: JobView, timeline: Timeline, run: RunView) -> Document:
    """Give what a job's document says of its run beside its own fields."""
    from ..control.run_documents import step_document, wait_document
    from ..control.timeline import timeline_document

    return {
        "steps": [step_document(step, with_value=True) for step in run.history.steps],
        "waits": [wait_document(wait) for wait in run.history.waits],
        "spans": timeline_document(view, timeline)["spans"],
    }


def print_waits(run: RunView) -> None:
    """Print what a run waits for, one wait a line."""
    for wait in run.history.waits:
        print(safe(f"waits for  {_waited_for(wait)}, step {wait.name!a}, since {time_of(wait.began_at)}"))


def print_waterfall(timeline: Timeline) -> None:
    """Print a job's life as bars, oldest first."""
    if not timeline.spans:
        return
    began = timeline.spans[0].started_at
    ended = max(span.ended_at or span.started_at for span in timeline.spans)
    rows = [_row(span, began, ended) for span in timeline.spans]
    print()
    print_rows([_COLUMNS, *rows])
    print("\n. in the queue   = attempt   # step   - wait   | from the record   > goes on")


def _row(span: Span, began: datetime, ended: datetime) -> tuple[str, ...]:
    lasted = "" if span.ended_at is None else _seconds(span.ended_at - span.started_at)
    bar = _bar(_SIGNS[span.kind.value], span, began, ended)
    return (f"+{_seconds(span.started_at - began)}", lasted, f"[{bar}]", f"{_indent(span)}{_what(span)}")


def _bar(sign: str, span: Span, began: datetime, ended: datetime) -> str:
    whole = max(ended - began, timedelta(microseconds=1))
    first = min(_WIDTH - 1, int((span.started_at - began) / whole * _WIDTH))
    last = _WIDTH if span.ended_at is None else max(first + 1, round((span.ended_at - began) / whole * _WIDTH))
    length = min(_WIDTH, last) - first
    drawn = sign * (length - 1) + ">" if span.ended_at is None else sign * length
    return (" " * first + drawn).ljust(_WIDTH)


def _indent(span: Span) -> str:
    return "  " if span.kind.value in {"step", "wait", "replay"} else ""


def _what(span: Span) -> str:
    match span.kind.value:
        case "queue":
            return "held" if span.name == "held" else "in the queue"
        case "attempt":
            return _attempt(span)
        case "wait":
            return f"{span.name} ({span.step_kind})" + (": failed" if span.has_failed else "")
        case "replay":
            return f"{span.name} (from the record)"
        case _:
            return span.name


def _attempt(span: Span) -> str:
    if span.outcome is None:
        return f"{span.name}: runs on worker {span.worker_id}"
    counted = "counted" if span.is_counted else "not counted"
    cause = f"{span.cause}, " if span.cause else ""
    reached = f" at step {span.reached}" if span.reached else ""
    return f"{span.name}: {span.outcome.value} ({cause}{counted}){reached}"


def _waited_for(wait: WaitView) -> str:
    until = "" if wait.due_at is None else f" until {time_of(wait.due_at)}"
    if wait.event is not None:
        return f"event {wait.event} {wait.key!a}{until}"
    if wait.child_id is not None:
        state = "" if not wait.has_failed else f", which is {wait.child_state or 'deleted'}"
        return f"job {wait.child_id}{state}"
    return f"the time{until}"


def _seconds(span: timedelta) -> str:
    return f"{max(0.0, span / _SECOND):.3f} s"
