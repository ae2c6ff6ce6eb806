"""A job's life as spans, ready to be drawn: waits in the queue, attempts, the steps and waits of its run, replays.

Pure: made of what the store shows of the job, its ledger and its run. An attempt that suspended left no row on the
ledger; its span is read off the steps and waits it began, and says so. Called by RunControl.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..domain.job import JobId
from ..domain.ledger import CAUSE_HELD
from ..domain.outcome import ErrorInfo, OutcomeKind
from ..domain.snapshot import AttemptView, JobView
from ..domain.state import State
from ..domain.step import Place, RunView, StepKind, StepView, WaitView
from .render import Document
from .represent import error_document
from .run_documents import between_ms

MOST_SPANS = 2_000
# A body of these ran; the others were waited for.
_RAN = frozenset({StepKind.RUN, StepKind.TRANSACTION})
_WAITING = frozenset({State.DELAYED, State.READY, State.HELD})
_QUEUE = "queue"
_HELD = "held"  # when it was released is not kept: what follows in the queue is a part of it


class SpanKind(StrEnum):
    """What a span is of; in the order in which spans that begin together are given."""

    QUEUE = "queue"
    ATTEMPT = "attempt"
    REPLAY = "replay"
    STEP = "step"
    WAIT = "wait"


_ORDER = list(SpanKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One bar. `ended_at` is None while it lasts.

    `is_inferred`: of an attempt that suspended, from what it recorded. A replay is a step that an attempt got from the
    record instead of doing it again; it has no length. `until` is when a wait ends by itself.
    """

    kind: SpanKind
    name: str
    started_at: datetime
    ended_at: datetime | None
    claim_no: int | None = None
    is_inferred: bool = False
    outcome: OutcomeKind | None = None
    cause: str | None = None
    is_counted: bool | None = None
    worker_id: str | None = None
    host: str | None = None
    code_version: str | None = None
    reached: str | None = None
    error: ErrorInfo | None = None
    step_kind: StepKind | None = None
    place: Place | None = None
    until: datetime | None = None
    event: str | None = None
    key: str | None = None
    child_id: JobId | None = None
    has_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All spans by their beginning. `is_cut`: there are more replays than are given."""

    spans: tuple[Span, ...]
    is_cut: bool


def timeline_of(view: JobView, attempts: Sequence[AttemptView], run: RunView) -> Timeline:
    """Give the spans of a job's life. Steps that a fork brought along are replays only: they are of another life."""
    steps = [step for step in run.history.steps if step.ended_at >= view.created_at]
    brought, waits = [step for step in run.history.steps if step.ended_at < view.created_at], run.history.waits
    ran = sorted([*_ended(attempts), *_suspended(attempts, view, steps, waits), *_running(view)], key=_claim_of)
    spans = [
        *_queued(view, ran, steps),
        *ran,
        *(_step(step) for step in steps),
        *(_wait(wait) for wait in waits),
    ]
    replays = [replay for attempt in ran for replay in _replays(attempt, brought, steps)]
    room = max(0, MOST_SPANS - len(spans))
    shown = sorted([*spans, *replays[:room]], key=lambda span: (span.started_at, _ORDER.index(span.kind)))
    return Timeline(spans=tuple(shown), is_cut=len(replays) > room)


def _claim_of(span: Span) -> int:
    return span.claim_no or 0


# --- attempts -----------------------------------------------------------------------------------------------------


def _ended(attempts: Sequence[AttemptView]) -> Iterator[Span]:
    for attempt in attempts:
        yield Span(
            kind=SpanKind.ATTEMPT,
            name=f"attempt {attempt.number}",
            started_at=attempt.started_at or attempt.ended_at,
            ended_at=attempt.ended_at,
            claim_no=attempt.number,
            outcome=attempt.outcome,
            cause=attempt.cause,
            is_counted=attempt.counted,
            worker_id=None if attempt.worker_id is None else str(attempt.worker_id),
            host=attempt.host,
            code_version=attempt.code_version,
            reached=attempt.step,
            error=attempt.error,
        )


def _running(view: JobView) -> Iterator[Span]:
    if view.claim is not None:
        yield Span(
            kind=SpanKind.ATTEMPT,
            name=f"attempt {view.counters.claim_no}",
            started_at=view.claim.claimed_at,
            ended_at=None,
            claim_no=view.counters.claim_no,
            worker_id=str(view.claim.worker_id),
        )


def _suspended(
    attempts: Sequence[AttemptView], view: JobView, steps: Sequence[StepView], waits: Sequence[WaitView]
) -> Iterator[Span]:
    """Give the attempts that gave their worker back to wait: those that the ledger has no row of."""
    known = {attempt.number for attempt in attempts}
    known |= {view.counters.claim_no} if view.claim is not None else set()
    begun: defaultdict[int, list[StepView]] = defaultdict(list)
    for step in steps:
        if step.claim_no not in known:
            begun[step.claim_no].append(step)
    last = view.counters.claim_no
    open_waits = [wait.began_at for wait in waits] if last not in known else []
    for claim_no in sorted({*begun, *([last] if open_waits else [])}):
        bodies = [step for step in begun[claim_no] if step.kind in _RAN]
        ends = [step.ended_at for step in bodies]
        ends += [step.started_at for step in begun[claim_no] if step.kind not in _RAN]
        ends += open_waits if claim_no == last else []
        yield Span(
            kind=SpanKind.ATTEMPT,
            name=f"attempt {claim_no}",
            started_at=min([*(step.started_at for step in bodies), max(ends)]),
            ended_at=max(ends),
            claim_no=claim_no,
            is_inferred=True,
            outcome=OutcomeKind.SUSPENDED,
            is_counted=False,
            code_version=next((step.code_version for step in begun[claim_no]), None),
        )


# --- waits in the queue -------------------------------------------------------------------------------------------


def _queued(view: JobView, ran: Sequence[Span], steps: Sequence[StepView]) -> Iterator[Span]:
    """Give the time before the first attempt, and that between the end of an attempt, or of its wait, and the next."""
    since: datetime | None = view.created_at if view.run_at is None else max(view.created_at, view.run_at)
    if ran and since is not None and since > ran[0].started_at:
        since = view.created_at  # `run_at` is that of a later start
    name = _QUEUE
    for attempt in ran:
        if since is not None and attempt.started_at >= since:
            yield _queue(since, attempt.started_at, attempt.claim_no, name)
        since = attempt.ended_at if attempt.outcome is not OutcomeKind.SUSPENDED else _woken(attempt, steps)
        name = _HELD if attempt.cause == CAUSE_HELD else _QUEUE
    if since is not None and view.state in _WAITING:
        yield _queue(since, None, None, name)


def _woken(attempt: Span, steps: Sequence[StepView]) -> datetime | None:
    """Give when the first wait that an attempt suspended for was over; None while none is."""
    ends = [step.ended_at for step in steps if step.claim_no == attempt.claim_no and step.kind not in _RAN]
    return min(ends, default=None)


def _queue(since: datetime, until: datetime | None, claim_no: int | None, name: str) -> Span:
    return Span(kind=SpanKind.QUEUE, name=name, started_at=since, ended_at=until, claim_no=claim_no)


# --- the run ------------------------------------------------------------------------------------------------------


def _step(step: StepView) -> Span:
    return Span(
        kind=SpanKind.STEP if step.kind in _RAN else SpanKind.WAIT,
        name=step.name,
        started_at=step.started_at,
        ended_at=step.ended_at,
        claim_no=step.claim_no,
        code_version=step.code_version,
        step_kind=step.kind,
        place=step.place,
        child_id=step.child_id,
    )


def _wait(wait: WaitView) -> Span:
    return Span(
        kind=SpanKind.WAIT,
        name=wait.name,
        started_at=wait.began_at,
        ended_at=None,
        code_version=wait.code_version,
        step_kind=wait.kind,
        place=wait.place,
        until=wait.due_at,
        event=wait.event,
        key=wait.key,
        child_id=wait.child_id,
        has_failed=wait.has_failed,
    )


def _replays(attempt: Span, brought: Sequence[StepView], steps: Sequence[StepView]) -> Iterator[Span]:
    """Give the steps that were recorded before an attempt began."""
    # When an attempt that suspended began is not known for certain; the numbers of claims are.
    done = [
        step
        for step in steps
        if step.claim_no < _claim_of(attempt) and (attempt.is_inferred or step.ended_at <= attempt.started_at)
    ]
    for step in (*brought, *done):
        yield Span(
            kind=SpanKind.REPLAY,
            name=step.name,
            started_at=attempt.started_at,
            ended_at=attempt.started_at,
            claim_no=attempt.claim_no,
            code_version=step.code_version,
            step_kind=step.kind,
            place=step.place,
        )


def timeline_document(view: JobView, timeline: Timeline) -> Document:
    """Give a job's timeline as it looks from outside."""
    return {
        "id": view.id,
        "state": view.state,
        "spans": [_span_document(span) for span in timeline.spans],
        "is_cut": timeline.is_cut,
    }


def _span_document(span: Span) -> Document:
    return {
        "kind": span.kind,
        "name": span.name,
        "started_at": span.started_at,
        "ended_at": span.ended_at,
        "duration_ms": between_ms(span.started_at, span.ended_at),
        "claim_no": span.claim_no,
        "replayed": span.kind is SpanKind.REPLAY,
        "inferred": span.is_inferred,
        "outcome": span.outcome,
        "cause": span.cause,
        "counted": span.is_counted,
        "worker_id": span.worker_id,
        "host": span.host,
        "code_version": span.code_version,
        "reached": span.reached,
        "error": None if span.error is None else error_document(span.error),
        "step_kind": span.step_kind,
        "branch": None if span.place is None else span.place.branch,
        "until": span.until,
        "event": span.event,
        "key": span.key,
        "child_id": span.child_id,
        "has_failed": span.has_failed,
    }
