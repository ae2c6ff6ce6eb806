"""The text of a trace: one JSON object on one line, in a format of its own number.

Payload, result and values are in it as they are stored. A reader leaves out what it does not know, so that later
releases can say more; what they can no longer say so gets the next number. The reference page documents it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from .. import __version__
from ..control.render import Document, raw, render
from ..domain.errors import JsonInvalid, RequestInvalid
from ..domain.job import Counters, JobId, RunId
from ..domain.json_text import elements, members
from ..domain.sealed import readable
from ..domain.snapshot import JobView
from ..domain.state import State
from ..domain.step import Place, RunHistory, StepKind, StepView, WaitView
from .trace import Trace

FORMAT = 1
_LINE_BREAKS = str.maketrans("\r\n", "  ")  # between the tokens of a stored text; inside its strings there are none


def line_of(trace: Trace) -> bytes:
    """Give the line of a trace, with its end."""
    job = trace.job
    document: Document = {
        "trace": FORMAT,
        "outlast": __version__,
        "job_id": job.id,
        "run_id": job.run_id,
        "name": job.name,
        "queue": job.queue,
        "tenant": job.tenant,
        "state": job.state,
        "state_reason": job.state_reason,
        "priority": job.priority,
        "attempt": job.counters.attempt,
        "claim_no": job.counters.claim_no,
        "crashes": job.counters.crashes,
        "interrupts": job.counters.interrupts,
        "max_attempts": job.max_attempts,
        "max_crashes": job.max_crashes,
        "created_at": job.created_at,
        "idempotency_key": job.key,
        "parent_id": job.parent_id,
        "enqueued_by": job.enqueued_by,
        "traceparent": job.traceparent,
        "tags": list(job.tags),
    }
    _put(document, "meta", job.meta)
    _put(document, "payload", job.payload)
    _put(document, "result", job.result)
    document["steps"] = [_step_document(step) for step in trace.history.steps]
    document["waits"] = [_wait_document(wait) for wait in trace.history.waits]
    return render(document) + b"\n"


def trace_of(line: bytes, *, number: int) -> Trace:
    """Read a line; `number` is its own, for messages.

    Raises:
        RequestInvalid: it is no trace, or of a format that this release does not read.
    """
    try:
        _refuse_other_formats(_Head.model_validate_json(line).trace, number)
        read = _Line.model_validate_json(line)
        texts = members(line.decode())
        values = [members(each).get("value") for each in elements(texts.get("steps", "[]"))]
    except (ValidationError, JsonInvalid) as exc:
        raise RequestInvalid(
            f"line {number} is no trace of a run: {_first(exc)}", fix="write the file with `outlast jobs traces`"
        ) from exc
    return Trace(
        job=_job(read, texts),
        history=RunHistory(
            steps=tuple(step.view(value) for step, value in zip(read.steps, values, strict=True)),
            waits=tuple(wait.view() for wait in read.waits),
        ),
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def _put(document: Document, name: str, text: str | None) -> None:
    """Put a stored text into a document; nothing stored is nothing written, which a stored `null` is not."""
    if text is not None:
        document[name] = raw((readable(text) or "").translate(_LINE_BREAKS))


def _step_document(step: StepView) -> Document:
    document: Document = {
        "name": step.name,
        "kind": step.kind,
        "branch": step.place.branch,
        "number": step.place.number,
        "seq": step.seq,
        "claim_no": step.claim_no,
        "code_version": step.code_version,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "has_event": step.has_event,
        "child_id": step.child_id,
    }
    _put(document, "value", step.value)
    return document


def _wait_document(wait: WaitView) -> Document:
    return {
        "name": wait.name,
        "kind": wait.kind,
        "branch": wait.place.branch,
        "number": wait.place.number,
        "code_version": wait.code_version,
        "began_at": wait.began_at,
        "due_at": wait.due_at,
        "event": wait.event,
        "key": wait.key,
        "child_id": wait.child_id,
        "child_state": wait.child_state,
        "is_child_gone": wait.is_child_gone,
        "child_error_type": wait.child_error_type,
        "child_error_message": wait.child_error_message,
        "child_error_code": wait.child_error_code,
    }


# --- reading ----------------------------------------------------------------------------------------------------------

_Number = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    kind: StepKind
    branch: str
    number: _Number
    code_version: str

    @property
    def place(self) -> Place:
        return Place(self.branch, self.number)


class _Step(_Part):
    seq: int
    claim_no: int
    started_at: AwareDatetime
    ended_at: AwareDatetime
    has_event: bool = False
    child_id: UUID | None = None

    def view(self, value: str | None) -> StepView:
        return StepView(
            seq=self.seq,
            name=self.name,
            kind=self.kind,
            place=self.place,
            value=value,
            claim_no=self.claim_no,
            code_version=self.code_version,
            started_at=self.started_at,
            ended_at=self.ended_at,
            has_event=self.has_event,
            child_id=_job_id(self.child_id),
        )


class _Wait(_Part):
    began_at: AwareDatetime
    due_at: AwareDatetime | None = None
    event: str | None = None
    key: str | None = None
    child_id: UUID | None = None
    child_state: State | None = None
    is_child_gone: bool = False
    child_error_type: str | None = None
    child_error_message: str | None = None
    child_error_code: str | None = None

    def view(self) -> WaitView:
        return WaitView(
            name=self.name,
            kind=self.kind,
            place=self.place,
            began_at=self.began_at,
            code_version=self.code_version,
            due_at=self.due_at,
            event=self.event,
            key=self.key,
            child_id=_job_id(self.child_id),
            child_state=self.child_state,
            is_child_gone=self.is_child_gone,
            child_error_type=self.child_error_type,
            child_error_message=self.child_error_message,
            child_error_code=self.child_error_code,
        )


class _Head(BaseModel):
    trace: int


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: UUID
    run_id: UUID
    name: str
    queue: str
    tenant: str
    state: State
    state_reason: str | None = None
    priority: int
    attempt: _Number
    claim_no: _Number
    crashes: _Number
    interrupts: _Number
    max_attempts: int
    max_crashes: int
    created_at: AwareDatetime
    idempotency_key: str | None = None
    parent_id: UUID | None = None
    enqueued_by: str | None = None
    traceparent: str | None = None
    tags: tuple[str, ...] = ()
    payload: Any
    steps: tuple[_Step, ...]
    waits: tuple[_Wait, ...]


def _refuse_other_formats(number_of_format: int, number: int) -> None:
    """Refuse before anything else is read: another format may have none of the rest."""
    if number_of_format != FORMAT:
        raise RequestInvalid(
            f"line {number} is a trace of format {number_of_format}, and this release reads {FORMAT}",
            fix="write the file with the release that checks it, or check with the release that wrote it",
        )


def _job(read: _Line, texts: dict[str, str]) -> JobView:
    created_at: datetime = read.created_at
    return JobView(
        id=JobId(read.job_id),
        run_id=RunId(read.run_id),
        name=read.name,
        queue=read.queue,
        state=read.state,
        state_reason=read.state_reason,
        priority=read.priority,
        tenant=read.tenant,
        counters=Counters(read.attempt, read.claim_no, read.crashes, read.interrupts),
        max_attempts=read.max_attempts,
        max_crashes=read.max_crashes,
        created_at=created_at,
        payload=texts["payload"],
        result=texts.get("result"),
        key=read.idempotency_key,
        parent_id=_job_id(read.parent_id),
        enqueued_by=read.enqueued_by,
        traceparent=read.traceparent,
        tags=read.tags,
        meta=texts.get("meta"),
    )


def _job_id(value: UUID | None) -> JobId | None:
    return None if value is None else JobId(value)


def _first(error: ValidationError | JsonInvalid) -> str:
    """Say where the first fault is, without the value."""
    if isinstance(error, JsonInvalid):
        return error.cause
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{first['msg']}{f' at {where}' if where else ''}"
