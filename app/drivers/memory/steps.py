"""Steps and notes of a run: written under the claim's fence, read back in the order they were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

from ...domain.errors import RequestInvalid, TransactionForeign
from ...domain.job import ClaimToken, JobId, RunId
from ...domain.state import State
from ...domain.step import (
    LogLine,
    NewNotes,
    NewStep,
    ProgressView,
    RunHistory,
    RunView,
    StepView,
    WaitView,
    lines_kept,
)
from .rows import Finished, Running
from .run_rows import Step, WaitRow
from .store import Store
from .view import last_error

_MOST_CHILDREN = 100


def history(store: Store, job_id: JobId, run_id: RunId) -> RunHistory:
    """Give what is recorded of a run and what it waits for; see `RunStore.history`."""
    with store.statement():
        return _history(store, job_id, run_id)


def record_step(store: Store, token: ClaimToken, step: NewStep) -> bool:
    """Record a step under a claim; see `RunStore.record_step`.

    Raises:
        RequestInvalid: a text of it cannot be stored.
    """
    _refuse_unstorable(step)
    with store.statement() as now:
        running = store.fenced(token, now)
        if running is not None:
            _record(store, token.job_id, running, step, now)
        return running is not None


class NoTransaction(AbstractAsyncContextManager[Any]):
    """Rows in this process are in no database: no caller's transaction can hold them."""

    async def __aenter__(self) -> NoReturn:
        raise TransactionForeign(
            "the memory driver is in no database, so that nothing can be committed together with a step",
            fix="use ctx.step.run here, or run the job on PostgreSQL",
        )

    async def __aexit__(self, *how: object) -> None:
        pass


def note(store: Store, notes: Sequence[NewNotes]) -> int:
    """Keep lines and progress of runs, each fenced by its own token; see `RunStore.note`."""
    with store.statement() as now:
        return sum(_note(store, one, now) for one in notes)


def run_view(
    store: Store, job_id: JobId, *, tenant: str | None, after: int, values: int | None = None
) -> RunView | None:
    """Give a job's run; see `RunStore.run`."""
    with store.statement():
        envelope = store.envelopes.get(job_id)
        if envelope is None or tenant not in {None, envelope.job.tenant}:
            return None
        children = sorted(
            child
            for child, other in store.envelopes.items()
            if other.job.parent_id == job_id and tenant in {None, other.job.tenant}
        )
        history = _history(store, job_id, envelope.run_id)
        shown = [step for step in history.steps if step.seq > after]
        most = len(shown) if values is None else values
        steps = (*shown[:most], *(replace(step, value=None) for step in shown[most:]))
        return RunView(
            history=replace(history, steps=steps),
            lines=tuple(line for line in store.runs.lines.get(job_id, ()) if line.seq > after),
            progress=store.runs.progress.get(job_id),
            children=tuple(children[:_MOST_CHILDREN]),
        )


def waits_shown(store: Store, job_id: JobId) -> tuple[WaitView, ...]:
    """Give what a run waits for, each call with what became of its child; for a caller in a statement."""
    return tuple(_wait_view(store, wait) for wait in store.runs.waits_of(job_id))


def _history(store: Store, job_id: JobId, run_id: RunId) -> RunHistory:
    steps = tuple(step.view for step in store.runs.steps_of(run_id))
    return RunHistory(steps=steps, waits=waits_shown(store, job_id))


def _refuse_unstorable(step: NewStep) -> None:
    for text in (step.name, step.place.branch, step.value or ""):
        # A raw control character is in no JSON and no printable name; PostgreSQL sends steps with one between them.
        if "\0" in text or "\x1f" in text or any("\ud800" <= char <= "\udfff" for char in text):
            raise RequestInvalid(
                f"the step {step.name!a} has a text with NUL, a raw control character or half of a surrogate pair",
                fix="leave the character out, or encode the value another way",
            )


def _record(store: Store, job_id: JobId, running: Running, step: NewStep, now: datetime) -> None:
    view = StepView(
        seq=store.runs.next_seq(),
        name=step.name,
        kind=step.kind,
        place=step.place,
        value=step.value,
        claim_no=running.counters.claim_no,
        code_version=store.workers[running.worker_id].about.code_version,
        started_at=now - step.lasted,
        ended_at=now,
    )
    store.runs.steps[store.envelopes[job_id].run_id].setdefault(step.name, Step(view=view))


def _note(store: Store, notes: NewNotes, now: datetime) -> bool:
    job_id, runs = notes.token.job_id, store.runs
    if store.fenced(notes.token, now) is None:
        return False
    for message in lines_kept(len(runs.lines.get(job_id, ())), notes.lines):
        line = LogLine(seq=runs.next_seq(), at=now, claim_no=notes.token.claim_no, message=message)
        runs.lines[job_id].append(line)
    if notes.progress is not None:
        value, message_or_none = notes.progress
        runs.progress[job_id] = ProgressView(value=value, message=message_or_none, at=now)
    return True


def _wait_view(store: Store, wait: WaitRow) -> WaitView:
    shown = WaitView(
        name=wait.name,
        kind=wait.kind,
        place=wait.place,
        began_at=wait.began_at,
        code_version=wait.code_version,
        due_at=wait.due_at,
        event=wait.event,
        key=wait.key,
        child_id=wait.child_id,
    )
    return shown if wait.child_id is None else _with_child(store, shown, wait.child_id)


def _with_child(store: Store, shown: WaitView, child_id: JobId) -> WaitView:
    match store.tokens.get(child_id):
        case None:
            return replace(shown, is_child_gone=True)
        case Finished(state=State.DEAD | State.CANCELLED as state):
            error = last_error(store, child_id)
            return replace(
                shown,
                child_state=state,
                child_error_type=None if error is None else error.type,
                child_error_message=None if error is None else error.message,
                child_error_code=None if error is None else error.code,
            )
        case _:
            return shown
