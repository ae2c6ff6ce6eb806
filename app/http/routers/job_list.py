"""`GET /v1/jobs`: pages of jobs that lead both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.jobs import ListQuery
from ...control.render import Document, raw
from ...control.represent import job_document
from ...domain.redaction import redacted
from ...domain.snapshot import JobView
from ..answers_list import JobList
from ..caller import Reader, visible_tenant
from ..documents import SUMMARY_EXAMPLE, answer, problems
from ..framework import refuse_repeated
from ..includes import LARGE, check_included, with_traceback
from ..job_pages import page_of
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
        **problems(400),
    },
)
async def list_jobs(
    request: Request, services: Services, identity: Reader, params: Annotated[ListParams, Query()]
) -> Response:
    """Give one page of jobs; `next_cursor` and `prev_cursor` go on under the same filters and in the same order.

    A page is looked for along the index of what the fewest jobs have. With several filters that many jobs fit, but few
    fit all, it may be short, or empty, and its cursor goes on. `count=true` counts what fits, up to 10,000.
    """
    refuse_repeated(request, lists=LISTS)
    words = frozenset[str](params.include)
    check_included(identity, words)
    query = params.query(visible_tenant(identity, params.tenant))
    filters = _filters(query, params.sort)
    page = await page_of(services.jobs, query, sort=params.sort, cursor=params.cursor, filters=filters)
    items = await services.jobs.in_full(page.items, tenant=query.tenant) if words & LARGE else page.items
    document: Document = {
        "items": [_item(view, words, root_of(request), await _redact(services, view, words)) for view in items],
        "next_cursor": page.next_cursor,
        "prev_cursor": page.prev_cursor,
        "count": None,
    }
    headers = _links(request, document)
    if params.count:
        counted = await services.jobs.count(query)
        document |= {"count": {"value": counted.value, "capped": counted.is_capped}}
    return reply(document, headers=headers)


async def _redact(services: Services, view: JobView, words: frozenset[str]) -> Sequence[str]:
    return await services.jobs.redaction.of(view.name) if words & LARGE else ()


def _item(view: JobView, words: frozenset[str], root: str, redact: Sequence[str]) -> Document:
    document = job_document(view, with_payload=False, root=root)
    if "payload" in words:
        document["payload"] = raw(redacted(view.payload, redact))
    if "result" in words:
        document["result"] = raw(redacted(view.result, redact))
    return with_traceback(document, view) if "error" in words else document


def _filters(query: ListQuery, sort: str) -> tuple[str | None, ...]:
    """Give what a cursor is good for."""
    wanted = (query.created_after, query.created_before, query.finished_after, query.finished_before)
    due = (query.run_at_after, query.run_at_before)
    more: dict[str, object] = {
        "times": [None if at is None else at.isoformat() for at in (*wanted, *due)],
        "tags": [query.tags_any, query.tags_all],
        "words": [query.key, query.error_code],
        "ids": [query.parent_id, query.worker_id],
        "sort": sort,
    }
    return (*sorted(query.states), query.name, query.queue, query.tenant, repr(more))


def _links(request: Request, document: Document) -> dict[str, str]:
    links = []
    for name, rel in (("next_cursor", "next"), ("prev_cursor", "prev")):
        if document[name] is not None:
            query = str(request.url.include_query_params(cursor=document[name]).query)
            links.append(f'<{root_of(request)}/v1/jobs?{query}>; rel="{rel}"')
    return {"Link": ", ".join(links)} if links else {}
