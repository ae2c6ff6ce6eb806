"""`GET /v1/jobs`: pages of jobs, newest first, that lead both ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.jobs import ListQuery
from ...control.render import Document
from ...control.represent import job_document
from ...domain.snapshot import JobPage
from ..answers_list import JobList
from ..caller import Reader, visible_tenant
from ..cursor import read_two_way_cursor, write_back_cursor, write_cursor
from ..documents import SUMMARY_EXAMPLE, answer, problems
from ..framework import refuse_repeated
from ..replies import reply, root_of
from ..requests_list import LISTS, ListParams
from ..services import Services

router = APIRouter(tags=["jobs"])

_PAGE = {"items": [SUMMARY_EXAMPLE], "next_cursor": None, "prev_cursor": None, "count": {"value": 1, "capped": False}}


@router.get(
    "/v1/jobs",
    operation_id="listJobs",
    summary="List jobs, newest first",
    response_model=None,
    responses={
        200: answer(JobList, "One page.", _PAGE, Link="The next page and the previous one, if any."),
        **problems(400, 501),
    },
)
async def list_jobs(
    request: Request, services: Services, identity: Reader, params: Annotated[ListParams, Query()]
) -> Response:
    """Give one page of jobs without payloads; `next_cursor` and `prev_cursor` go on under the same filters.

    A page is looked for among a bounded number of jobs: with filters that few jobs fit it may be short, or empty, and
    its cursor goes on. `count=true` counts what fits, up to 10,000.
    """
    refuse_repeated(request, lists=LISTS)
    query = params.query(visible_tenant(identity, params.tenant))
    filters = _filters(query)
    page = await services.jobs.list(_paged(query, params.cursor, filters))
    document = _document(page, filters, root_of(request))
    headers = _links(request, document)
    if params.count:
        counted = await services.jobs.count(query)
        document |= {"count": {"value": counted.value, "capped": counted.is_capped}}
    return reply(document, headers=headers)


def _filters(query: ListQuery) -> tuple[str | None, ...]:
    """Give what a cursor is good for."""
    wanted = (query.created_after, query.created_before, query.finished_after, query.finished_before)
    more: dict[str, object] = {
        "times": [None if at is None else at.isoformat() for at in wanted],
        "tags": [query.tags_any, query.tags_all],
        "words": [query.key, query.error_code],
        "ids": [query.parent_id, query.worker_id],
    }
    return (*sorted(query.states), query.name, query.queue, query.tenant, repr(more))


def _paged(query: ListQuery, cursor: str | None, filters: tuple[str | None, ...]) -> ListQuery:
    if cursor is None:
        return query
    job_id, is_back = read_two_way_cursor(cursor, filters)
    return replace(query, after=job_id) if is_back else replace(query, before=job_id)


def _document(page: JobPage, filters: tuple[str | None, ...], root: str) -> Document:
    return {
        "items": [job_document(view, with_payload=False, root=root) for view in page.items],
        "next_cursor": None if page.next_after is None else write_cursor(page.next_after, filters),
        "prev_cursor": None if page.newer_than is None else write_back_cursor(page.newer_than, filters),
        "count": None,
    }


def _links(request: Request, document: Document) -> dict[str, str]:
    links = []
    for name, rel in (("next_cursor", "next"), ("prev_cursor", "prev")):
        if document[name] is not None:
            query = str(request.url.include_query_params(cursor=document[name]).query)
            links.append(f'<{root_of(request)}/v1/jobs?{query}>; rel="{rel}"')
    return {"Link": ", ".join(links)} if links else {}
