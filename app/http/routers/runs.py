"""Reading the run of a job: `GET /v1/jobs/{id}/steps`, `/timeline`, `/logs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.render import Document
from ...control.run_documents import line_document, progress_document, step_document, wait_document
from ...control.timeline import timeline_document
from ...domain.step import LogLine, StepView
from ..auth import Scope
from ..caller import Reader
from ..cursor import read_number_cursor, write_number_cursor
from ..documents import ELSEWHERE, answer, problems
from ..framework import refuse_repeated
from ..replies import reply
from ..requests import RunPageParams
from ..run_answers import LineList, StepList, Timeline
from ..run_examples import LINES, STEPS, TIMELINE
from ..services import Services
from .jobs import parse_job_id

router = APIRouter(tags=["runs"])

RowT = TypeVar("RowT", StepView, LogLine)
_NEXT = "The next page, if any."


@router.get(
    "/v1/jobs/{job_id}/steps",
    operation_id="listSteps",
    summary="List the steps of a job's run",
    response_model=None,
    responses={
        200: answer(StepList, "The steps, and the waits.", STEPS, Link=_NEXT),
        303: ELSEWHERE,
        **problems(400, 404),
    },
)
async def list_steps(
    request: Request, job_id: str, services: Services, identity: Reader, params: Annotated[RunPageParams, Query()]
) -> Response:
    """Give what is recorded of the run, in order of record, and everything it waits for.

    Values are given byte for byte as they were stored, to keys with the scope `payload:read`.
    """
    page = _Page(request, job_id, params, "steps")
    with_value = identity.may(Scope.PAYLOAD_READ)
    values = params.limit if with_value else 0
    run = await services.runs.run(parse_job_id(job_id), tenant=identity.tenant, after=page.after, values=values)
    shown, cursor = page.of(run.history.steps)
    known = services.jobs.redaction
    redact = await known.of_job(parse_job_id(job_id), tenant=identity.tenant) if with_value and shown else ()
    document: Document = {
        "items": [step_document(step, with_value=with_value, redact=redact) for step in shown],
        "waits": [wait_document(wait) for wait in run.history.waits],
        "children": list(run.children),
        "next_cursor": cursor,
    }
    return reply(document, headers=page.link(cursor))


@router.get(
    "/v1/jobs/{job_id}/timeline",
    operation_id="getTimeline",
    summary="A job's life as spans",
    response_model=None,
    responses={200: answer(Timeline, "The spans, by their beginning.", TIMELINE), 303: ELSEWHERE, **problems(404)},
)
async def get_timeline(job_id: str, services: Services, identity: Reader) -> Response:
    """Give waits in the queue, attempts, steps, sleeps and waits as spans that can be drawn as they are.

    A step that a later attempt got from the record is a span of its own, `replayed`, without length. Attempts that
    suspended are read off what they recorded.
    """
    return reply(timeline_document(*await services.runs.timeline(parse_job_id(job_id), tenant=identity.tenant)))


@router.get(
    "/v1/jobs/{job_id}/logs",
    operation_id="listLogs",
    summary="List the lines that a job's run kept",
    response_model=None,
    responses={
        200: answer(LineList, "The lines, oldest first.", LINES, Link=_NEXT),
        303: ELSEWHERE,
        **problems(400, 404),
    },
)
async def list_logs(
    request: Request, job_id: str, services: Services, identity: Reader, params: Annotated[RunPageParams, Query()]
) -> Response:
    """Give what the body said with `ctx.log`, oldest first, and its latest progress."""
    page = _Page(request, job_id, params, "logs")
    run = await services.runs.run(parse_job_id(job_id), tenant=identity.tenant, after=page.after, values=0)
    shown, cursor = page.of(run.lines)
    document: Document = {
        "items": [line_document(line) for line in shown],
        "progress": None if run.progress is None else progress_document(run.progress),
        "next_cursor": cursor,
    }
    return reply(document, headers=page.link(cursor))


class _Page:
    """Which part of a run's rows a request asks for."""

    def __init__(self, request: Request, job_id: str, params: RunPageParams, what: str) -> None:
        refuse_repeated(request)
        self._request = request
        self._filters = (what, job_id.lower())
        self._limit = params.limit
        self.after = 0 if params.cursor is None else read_number_cursor(params.cursor, self._filters)

    def of(self, rows: Sequence[RowT]) -> tuple[Sequence[RowT], str | None]:
        """Give the rows of the page, and the cursor of the next one."""
        shown = rows[: self._limit]
        return shown, write_number_cursor(shown[-1].seq, self._filters) if len(rows) > len(shown) else None

    def link(self, cursor: str | None) -> dict[str, str]:
        """Give the header that leads to the next page."""
        if cursor is None:
            return {}
        following = str(self._request.url.include_query_params(cursor=cursor).query)
        return {"Link": f'<{self._request.url.path}?{following}>; rel="next"'}
