"""One job on one page: why it waits, its life as a picture, its attempts, what went in and came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from ...control.jobs import job_not_found
from ...control.redaction import shown_view
from ...control.render import render
from ...control.represent import job_document
from ...control.runs import Life
from ...domain.edit import DELETABLE, EDITABLE, version_of
from ...domain.job import JobId
from ...domain.ledger import FIRST_KEPT, LAST_KEPT
from ...domain.reason import Explanation, Reason, ReasonKind
from ...domain.redaction import redacted
from ...domain.snapshot import AttemptView, JobView
from ...domain.state import LIVE, RETRYABLE, TERMINAL, State
from ...domain.step import RunView
from ...domain.text import read_uuid
from ..visit import OPERATE, PAYLOADS, READ, WRITE, Visit
from ..waterfall import MOST_ROWS, Row, Waterfall, waterfall_of

_CHECKS = {
    ReasonKind.STATE: ("Due", "its time has come"),
    ReasonKind.QUEUE: ("Queue open", "neither paused nor at its limit"),
    ReasonKind.FLEET: ("Served", "a live worker serves its queue, name and version"),
    ReasonKind.TURN: ("Order", "nothing is before it"),
}
_MOST_STEPS = 200
_STEP_FILTERS = ("all", "failed", "pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition of the claim, in the order of the claim: met, the first that is not, or one that comes later."""

    title: str
    state: str
    text: str
    repair: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is shown of a job; `values` are those of its steps by their number, `is_partial` that something is not."""

    job: JobView
    values: dict[int, str | None]
    is_partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Doable:
    """What can be done to a job now; what cannot says why."""

    cancel: str | None
    retry: str | None
    run_now: str | None
    edit: str | None
    delete: str | None
    release: str | None


def job_id_of(visit: Visit) -> JobId:
    """Give the id in the path. Raises `JOB_NOT_FOUND`: ids are opaque, and this cannot be one."""
    text = visit.part("job_id")
    found = read_uuid(text)
    if found is None:
        raise job_not_found(text)
    return JobId(found)


async def page(visit: Visit) -> Response:
    """Give the page of a job, or of it the part that changes."""
    return await _page(visit)


async def reveal(visit: Visit) -> Response:
    """Give the page with nothing kept back, this once; who looked is in the audit before."""
    form = await visit.form()
    visit.need(READ)
    view = await visit.services.jobs.describe(job_id_of(visit), tenant=visit.tenant)
    visit.seen.visitor.check_queue(view.queue)
    await visit.services.jobs.redaction.reveal(view, by=visit.acting(form))
    return await _page(visit, is_whole=True)


async def _page(visit: Visit, *, is_whole: bool = False) -> Response:
    job_id, tenant = job_id_of(visit), visit.tenant
    values = _MOST_STEPS if visit.may(PAYLOADS) else 0
    life = await visit.services.runs.life(job_id, tenant=tenant, values=values)
    view, run, attempts, timeline = life.view, life.run, life.attempts, life.timeline
    kept = await _kept(visit, life, is_whole=is_whole)
    explained = await visit.services.jobs.explain(job_id, tenant=tenant)
    is_folded = visit.asked("scale") != "true"
    fall = waterfall_of(
        timeline, created=view.created_at, ended=view.finished_at, now=explained.at, is_folded=is_folded
    )
    shown = visit.asked("steps") if visit.asked("steps") in _STEP_FILTERS else "all"
    rows = _chosen(fall, shown)
    first = visit.asked_number("row") or 0
    return visit.page(
        "job.html",
        title=f"{view.name} …{str(view.id)[-8:]}",
        at="jobs",
        job=kept.job,
        is_partial=kept.is_partial,
        is_whole=is_whole,
        values=kept.values,
        row_version=version_of(view),
        fall=fall,
        rows=rows[first : first + MOST_ROWS],
        rows_all=len(rows),
        rows_first=first,
        rows_most=MOST_ROWS,
        steps_shown=shown,
        is_folded=is_folded,
        attempts=list(reversed(attempts)),
        budgets=_budgets(view, attempts),
        suspended=[span.claim_no for span in timeline.spans if span.is_inferred],
        run=run,
        steps_most=_MOST_STEPS,
        explained=explained,
        answer=_answer(explained),
        checks=_checks(explained) if view.state in LIVE - {State.RUNNING} else (),
        doable=_doable(view),
        log=_log(view, attempts, run),
        sees_payload=visit.may(PAYLOADS),
        may_act=visit.may(OPERATE),
        may_write=visit.may(WRITE),
    )


async def raw(visit: Visit) -> Response:
    """Give the job as the API shows it, to look at or to keep."""
    view = await visit.services.jobs.describe(job_id_of(visit), tenant=visit.tenant)
    paths = await visit.services.jobs.redaction.of(view.name)
    document = job_document(shown_view(view, paths, by_name=True), with_payload=visit.may(PAYLOADS))
    headers = {"Content-Disposition": f'attachment; filename="{view.id}.json"'}
    return Response(render(document) + b"\n", media_type="application/json", headers=headers)


async def _kept(visit: Visit, life: Life, *, is_whole: bool) -> Kept:
    """Give what is shown of a job's payload, result and values, which is nothing without the scope for them."""
    steps = life.run.history.steps[:_MOST_STEPS]
    if not visit.may(PAYLOADS) or is_whole:
        values = {step.seq: redacted(step.value, ()) for step in steps}
        return Kept(job=shown_view(life.view, ()), values=values, is_partial=False)
    paths = await visit.services.jobs.redaction.of(life.view.name)
    shown = shown_view(life.view, paths, by_name=True)
    values = {step.seq: redacted(step.value, paths, by_name=True) for step in steps}
    is_partial = shown != life.view or any(values[step.seq] != step.value for step in steps)
    return Kept(job=shown, values=values, is_partial=is_partial)


def _chosen(fall: Waterfall, shown: str) -> list[Row]:
    return [row for row in fall.rows if shown in {"all", row.state}]


def _answer(explained: Explanation) -> Reason:
    return explained.reasons[0]


def _checks(explained: Explanation) -> tuple[Check, ...]:
    found: list[Check] = []
    is_stopped = False
    for kind, (title, met) in _CHECKS.items():
        reasons = [reason for reason in explained.reasons if reason.kind is kind]
        if not reasons:
            # Behind what stops the job nothing was asked of turns: nobody is in line.
            found.append(
                Check(
                    title=title,
                    state="delayed" if is_stopped else "ok",
                    text=met if not is_stopped else "asked once it is its turn",
                )
            )
            continue
        for reason in reasons:
            state = "delayed" if is_stopped else "stop" if kind is not ReasonKind.TURN else "turn"
            found.append(Check(title=title, state=state, text=reason.text, repair=reason.repair))
            is_stopped = is_stopped or kind is not ReasonKind.TURN
    return tuple(found)


def _doable(view: JobView) -> Doable:
    state = view.state

    def unless(can: bool, why: str) -> str | None:  # noqa: FBT001 - a closure of one line
        return None if can else why

    return Doable(
        cancel=unless(state not in TERMINAL, f"it is {state} already"),
        retry=unless(
            state in RETRYABLE | {State.HELD}, f"only dead, cancelled and held jobs are retried; it is {state}"
        ),
        run_now=unless(
            state is State.DELAYED or (state is State.SUSPENDED and view.state_reason == "sleep"),
            f"it waits for no time; it is {state}",
        ),
        edit=unless(state in EDITABLE, f"only jobs that wait can be changed; it is {state}"),
        delete=unless(state in DELETABLE, f"only jobs that have ended or are held are deleted; it is {state}"),
        release=unless(state is State.HELD, f"only held jobs are released; it is {state}"),
    )


def _budgets(view: JobView, attempts: Sequence[AttemptView]) -> dict[int, int]:
    """Give of counted attempts which of the budget they were, by number; those before an operator's retry are none.

    Neither are those before the rows that a full ledger has let go of.
    """
    nth = view.counters.attempt - (view.state is State.RUNNING)
    found: dict[int, int] = {}
    newest = attempts if len(attempts) < FIRST_KEPT + LAST_KEPT else attempts[-LAST_KEPT:]
    for attempt in reversed(newest):
        if attempt.counted and nth > 0:
            found[attempt.number] = nth
            nth -= 1
    return found


def _log(view: JobView, attempts: tuple[AttemptView, ...], run: RunView) -> list[tuple[object, str, str]]:
    """Give what happened, newest first: when, a word, and a sentence."""
    found: list[tuple[object, str, str]] = [
        (view.created_at, "job.enqueued", f"by {view.enqueued_by or 'nobody named'}")
    ]
    for attempt in attempts:
        counted = "counted" if attempt.counted else "not counted"
        found.append((attempt.ended_at, f"attempt.{attempt.outcome}", f"attempt {attempt.number}, {counted}"))
    found += [(line.at, "run.log", line.message) for line in run.lines]
    return sorted(found, key=lambda entry: str(entry[0]), reverse=True)[:100]
