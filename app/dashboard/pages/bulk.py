"""Operations on many jobs: counted and confirmed, then followed on a page of their own.

What was shown is what is done: the confirmed number goes along, and where another number fits by then the form comes
back with both. Ending jobs and deleting them asks for the number to be typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from starlette.responses import Response

from ...control.bulk import BulkRequest
from ...domain.bulk import ACTS_ON, MOST_IDS, MOST_SELECTED, BulkAction, BulkId, JobFilter, unknown_operation
from ...domain.errors import CountChanged, RequestInvalid
from ...domain.job import JobId
from ...domain.state import State
from ...domain.text import read_uuid
from ..query import read_query
from ..visit import OPERATE, Form, Visit
from .dead import group_of

_TYPED = frozenset({BulkAction.CANCEL, BulkAction.DELETE})
_SHOWN = 50


async def page(visit: Visit) -> Response:
    """Give the newest operations."""
    found = await visit.services.bulk.list(limit=_SHOWN, before=None, tenant=visit.tenant)
    return visit.page("bulk.html", title="Bulk operations", at="bulk", operations=found)


async def one(visit: Visit) -> Response:
    """Give an operation as it stands, with some of what it failed on."""
    bulk_id = _id_of(visit)
    shown = await visit.services.bulk.find(bulk_id, tenant=visit.tenant)
    return visit.page(
        "bulk_one.html",
        title="Bulk operation",
        at="bulk",
        bulk=shown.view,
        errors=shown.errors,
        may_act=visit.may(OPERATE),
    )


async def abort(visit: Visit) -> Response:
    """Stop an operation behind the batch at hand."""
    form, bulk_id = await visit.form(), _id_of(visit)
    _check_queue(visit, (await visit.services.bulk.find(bulk_id, tenant=visit.tenant)).view.jobs.queue)
    await visit.services.bulk.abort(bulk_id, by=visit.acting(form), tenant=visit.tenant)
    return visit.go(f"/bulk/{bulk_id}", said="Aborted: what was done stays")


async def confirm(visit: Visit) -> Response:
    """Count what was selected and ask whether it is meant; changes nothing."""
    form = await visit.form()
    return await _asked(visit, form, status=HTTPStatus.OK)


async def make(visit: Visit) -> Response:
    """Make the operation that was confirmed, over as many jobs as were shown; without that number nothing is done."""
    form = await visit.form()
    request = _request(visit, form)
    expected = form.number("expected")
    if expected is None:
        return await _asked(
            visit, form, status=HTTPStatus.UNPROCESSABLE_ENTITY, wrong="confirm the number that is shown"
        )
    if request.action in _TYPED and form.number("typed") != expected:
        return await _asked(
            visit, form, status=HTTPStatus.UNPROCESSABLE_ENTITY, wrong="type the number of jobs to go on"
        )
    try:
        view = await visit.services.bulk.make(request)
    except CountChanged as error:
        return await _asked(visit, form, status=HTTPStatus.CONFLICT, wrong=error.cause)
    return visit.go(f"/bulk/{view.id}")


async def _asked(visit: Visit, form: Form, *, status: HTTPStatus, wrong: str = "") -> Response:
    request = _request(visit, form, expects=False)
    counted = await visit.services.bulk.count(request)
    return visit.page(
        "confirm.html",
        status=status,
        title="Confirm",
        at="jobs",
        action=request.action,
        verb=request.action.value.replace("_", " "),
        count=min(counted.count, MOST_SELECTED),
        is_capped=counted.count > MOST_SELECTED,
        ids=form.get("id", []) if request.ids is not None else [],
        selected=None if request.ids is None else len(request.ids),
        q=form.one("q"),
        group=form.one("group"),
        kind=None if counted.bulk.jobs is None else counted.bulk.jobs.error,
        name=None if counted.bulk.jobs is None else counted.bulk.jobs.name,
        scope="" if request.ids is not None else "matching",
        acts_on=sorted(ACTS_ON[request.action]),
        since=counted.bulk.jobs.created_after if counted.bulk.jobs is not None else None,
        is_typed=request.action in _TYPED,
        reason=form.one("reason"),
        wrong=wrong,
    )


def _request(visit: Visit, form: Form, *, expects: bool = True) -> BulkRequest:
    try:
        action = BulkAction(form.one("action"))
    except ValueError:
        raise RequestInvalid("no action was chosen", fix="choose one of the buttons below the list") from None
    expected = form.number("expected") if expects else None
    if form.one("group"):
        name, kind = group_of(form.one("group"))
        _check_queue(visit, None)
        dead = JobFilter(states=frozenset({State.DEAD}), name=name, error=kind)
        return BulkRequest(
            action=action, by=visit.acting(form), jobs=dead, tenant=visit.tenant, expected_count=expected
        )
    ids: Sequence[JobId] | None = None
    if form.one("scope") != "matching":
        ids = _ids(form)
    asked = read_query([form.one("q")], visit.now)
    if ids is None and asked.wrong:
        raise RequestInvalid(f"the filter is not understood: {asked.wrong[0]}", fix="correct the search first")
    if ids is None and asked.job_id is not None:
        raise RequestInvalid(
            "an id is no search: without it every job would match", fix="open that job, or select its row in the list"
        )
    if ids is None and asked.beyond_bulk:
        raise RequestInvalid(
            f"no operation can be made over all that match {asked.beyond_bulk[0]}:",
            fix="select rows of the list, or search by state, queue, name, created and before alone",
        )
    jobs = asked.filter() if ids is None else None
    if jobs is not None and jobs.states - ACTS_ON[action]:
        # A search over several states is narrowed to what the action can mean; over one alone it is refused.
        fitting = jobs.states & ACTS_ON[action]
        jobs = type(jobs)(
            states=fitting or jobs.states,
            name=jobs.name,
            queue=jobs.queue,
            created_after=jobs.created_after,
            created_before=jobs.created_before,
        )
    _check_queue(visit, None if jobs is None else jobs.queue)
    return BulkRequest(
        action=action,
        by=visit.acting(form),
        ids=ids,
        jobs=jobs,
        tenant=visit.tenant,
        expected_count=expected,
    )


def _check_queue(visit: Visit, queue: str | None) -> None:
    """Refuse a visitor whose key is bound to queues, unless the jobs are all of one of them."""
    if queue is None:
        visit.seen.visitor.check_every_queue("this selection")
    else:
        visit.seen.visitor.check_queue(queue)


def _ids(form: Form) -> list[JobId]:
    found = [read_uuid(text) for text in form.get("id", [])]
    ids = [JobId(each) for each in found if each is not None]
    if not ids or len(ids) != len(found) or len(ids) > MOST_IDS:
        raise RequestInvalid(
            "no jobs were selected" if not found else "these jobs cannot be selected together",
            fix=f"select 1 to {MOST_IDS} rows of the list, or all that match",
        )
    return ids


def _id_of(visit: Visit) -> BulkId:
    text = visit.part("bulk_id")
    found = read_uuid(text)
    if found is None:
        raise unknown_operation(text)
    return BulkId(found)
