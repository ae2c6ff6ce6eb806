"""How a run looks from outside: its steps, what it waits for, its lines, and events; the field names of the HTTP API.

Pure projections, as in `represent`. What a step gave and what an event carries goes through untouched as text, and only
where its reader may see payloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ..domain.event import EventView
from ..domain.redaction import redacted
from ..domain.step import LogLine, ProgressView, StepKind, StepView, WaitView
from .render import Document, raw

_MILLISECOND = timedelta(milliseconds=1)

# What a job that asked to be run again later waits for; it is no step of a run.
SNOOZING: Document = {
    "kind": StepKind.SLEEP.value,
    "name": None,
    "until": None,
    "since": None,
    "event": None,
    "key": None,
    "child_id": None,
    "others": 0,
}


def step_document(step: StepView, *, with_value: bool, redact: Sequence[str] = ()) -> Document:
    """Give one recorded step; without `value` for who may not see payloads, and without the places `redact` names."""
    document: Document = {
        "seq": step.seq,
        "name": step.name,
        "kind": step.kind,
        "branch": step.place.branch,
        "number": step.place.number,
        "claim_no": step.claim_no,
        "code_version": step.code_version,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "duration_ms": between_ms(step.started_at, step.ended_at),
        "timed_out": step.kind is StepKind.EVENT and not step.has_event,
        "child_id": step.child_id,
    }
    if with_value:
        document["value"] = raw(redacted(step.value, redact))
    return document


def wait_document(wait: WaitView) -> Document:
    """Give what a run waits for, or a call whose child failed."""
    return {
        "name": wait.name,
        "kind": wait.kind,
        "branch": wait.place.branch,
        "number": wait.place.number,
        "code_version": wait.code_version,
        "since": wait.began_at,
        "until": wait.due_at,
        "event": wait.event,
        "key": wait.key,
        "child_id": wait.child_id,
        "child_state": wait.child_state,
        "has_failed": wait.has_failed,
        "error": _child_error(wait),
    }


def waiting_document(waits: Sequence[WaitView]) -> Document | None:
    """Give what a job waits for in a few words: its first wait, and how many others there are."""
    if not waits:
        return None
    first = waits[0]
    return {
        "kind": first.kind,
        "name": first.name,
        "until": first.due_at,
        "since": first.began_at,
        "event": first.event,
        "key": first.key,
        "child_id": first.child_id,
        "others": len(waits) - 1,
    }


def progress_document(progress: ProgressView) -> Document:
    """Give how far a run says it has come."""
    return {"value": progress.value, "message": progress.message, "at": progress.at}


def line_document(line: LogLine) -> Document:
    """Give one line that a run kept."""
    return {"seq": line.seq, "at": line.at, "claim_no": line.claim_no, "message": line.message}


def event_document(event: EventView, *, with_payload: bool) -> Document:
    """Give a stored event. `payload` is left out for a reader who may not see payloads."""
    document: Document = {
        "id": event.id,
        "name": event.name,
        "key": event.key,
        "tenant": event.tenant,
        "emitted_at": event.emitted_at,
        "emitted_by": event.emitted_by,
        "matched": event.matched,
    }
    if with_payload:
        document["payload"] = raw(redacted(event.payload, ()))
    return document


def between_ms(start: datetime | None, end: datetime | None) -> int | None:
    """Give the milliseconds between two times, not below zero."""
    if start is None or end is None:
        return None
    return max(0, (end - start) // _MILLISECOND)


def _child_error(wait: WaitView) -> Document | None:
    if wait.child_error_type is None:
        return None
    return {"type": wait.child_error_type, "message": wait.child_error_message, "code": wait.child_error_code}
