"""Bulk operations: `POST` and `GET /v1/bulk-operations`, one of them, its jobs, and its abort."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.bulk import BulkRequest, BulkShown
from ...control.bulk_documents import bulk_document, count_document, item_document, notice_of
from ...domain.bulk import BulkAction, BulkId, unknown_operation
from ...domain.job import JobId
from ...domain.text import read_uuid
from ..answers_bulk import BulkCount, BulkJobList, BulkOperation, BulkOperationList
from ..body import read_body, read_optional_body
from ..caller import Operator, Reader, visible_tenant
from ..cursor import read_cursor, write_cursor
from ..documents import IDEMPOTENCY_KEY, JOB_ID, answer, body, problems
from ..framework import refuse_repeated
from ..once import OnceRoute, acting
from ..replies import reply, root_of
from ..requests_actions import ReasonBody
from ..requests_bulk import BulkBody, BulkItemParams, BulkListParams
from ..services import HttpServices, Services

router = APIRouter(tags=["bulk operations"], route_class=OnceRoute)

_ID = "0198c0f5-2a3b-7c4d-9e5f-6a7b8c9d0e1f"
_PATH = f"/v1/bulk-operations/{_ID}"
_SELECTED = {
    "ids": None,
    "filter": {
        "state": ["dead"],
        "name": "mail.send",
        "queue": None,
        "tenant": "default",
        "created_after": "2026-11-22T12:00:00Z",
        "created_before": None,
        "error": None,
    },
}
_NOTICE = "only jobs enqueued in the last 7 days: the filter names no time"
COUNT_EXAMPLE = {
    "dry_run": True,
    "action": "retry",
    "selector": _SELECTED,
    "matched": 12_340,
    "capped": False,
    "notice": _NOTICE,
}
BULK_EXAMPLE = {
    "id": _ID,
    "action": "retry",
    "state": "running",
    "selector": _SELECTED,
    "priority": None,
    "run_at": None,
    "reason": "the mail server is back",
    "created_by": "bootstrap",
    "created_at": "2026-11-29T12:00:00Z",
    "ended_at": None,
    "ended_by": None,
    "matched": 12_340,
    "done": 4_980,
    "changed": 19,
    "failed": 1,
    "left": 7_340,
    "errors_sample": [
        {
            "job_id": JOB_ID,
            "code": "JOB_DUPLICATE",
            "message": f"job {_ID} holds its idempotency key",
        }
    ],
    "links": {"self": _PATH, "items": f"{_PATH}/items", "abort": f"{_PATH}/abort"},
}
_ITEM = {
    "job_id": JOB_ID,
    "verdict": "changed",
    "code": "JOB_STATE_CONFLICT",
    "detail": "done",
    "message": "it is done",
    "decided_at": "2026-11-29T12:00:01Z",
}


@router.post(
    "/v1/bulk-operations",
    operation_id="createBulkOperation",
    summary="Do something to many jobs",
    status_code=202,
    response_model=None,
    responses={
        200: answer(BulkCount, "The dry run: how many jobs it would be.", COUNT_EXAMPLE),
        202: answer(
            BulkOperation,
            "Made; any worker works it off.",
            BULK_EXAMPLE | {"notice": _NOTICE},
            Location="The operation.",
        ),
        **problems(409, 501, has_body=True),
    },
    openapi_extra=body(
        BulkBody,
        {
            "count": {"action": "retry", "selector": {"filter": {"state": ["dead"]}}, "dry_run": True},
            "filter": {
                "action": "retry",
                "selector": {"filter": {"state": ["dead"], "name": "mail.send"}},
                "expected_count": 12_340,
                "reason": "the mail server is back",
            },
            "alike": {
                "action": "delete",
                "selector": {
                    "filter": {
                        "state": ["dead"],
                        "name": "mail.send",
                        "error": {"reason": "terminal", "type": "BadAddress", "code": None},
                    }
                },
            },
            "ids": {"action": "cancel", "selector": {"ids": [JOB_ID]}},
        },
        is_required=True,
    )
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def create_bulk_operation(request: Request, services: Services, identity: Operator) -> Response:
    """Make an operation over the jobs that fit now, or with `dry_run` only count them.

    Jobs that change before their turn comes are left alone and reported. With `expected_count`, another number of jobs
    is refused (`COUNT_CHANGED`). Every job that something was done to has a row in the audit.
    """
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(BulkBody)
    fields = asked.selector.filter
    if fields is None or fields.queue is None:
        identity.check_every_queue("this selection")
    else:
        identity.check_queue(fields.queue)
    wanted = BulkRequest(
        action=BulkAction(asked.action),
        by=await acting(request, services, identity, sent, asked.reason),
        ids=None if asked.selector.ids is None else [JobId(each) for each in asked.selector.ids],
        jobs=None if fields is None else fields.jobs(),
        tenant=visible_tenant(identity, None if fields is None else fields.tenant),
        expected_count=asked.expected_count,
        priority=asked.priority,
        run_at=asked.run_at,
    )
    return await reply_bulk(request, services, wanted, dry=asked.dry_run)


@router.get(
    "/v1/bulk-operations",
    operation_id="listBulkOperations",
    summary="List bulk operations, newest first",
    response_model=None,
    responses={
        200: answer(
            BulkOperationList,
            "One page.",
            {"items": [BULK_EXAMPLE], "next_cursor": None},
            Link="The next page, if any.",
        ),
        **problems(400, 501),
    },
)
async def list_bulk_operations(
    request: Request, services: Services, identity: Reader, params: Annotated[BulkListParams, Query()]
) -> Response:
    """Give one page of operations with how far they are; they are kept for 30 days after their end."""
    refuse_repeated(request)
    tenant = visible_tenant(identity, params.tenant)
    filters = ("bulk", tenant)
    before = None if params.cursor is None else BulkId(read_cursor(params.cursor, filters))
    views = await services.bulk.list(limit=params.limit + 1, before=before, tenant=tenant)
    page = views[: params.limit]
    cursor = write_cursor(JobId(page[-1].id), filters) if len(views) > len(page) else None
    root = root_of(request)
    items = [bulk_document(view, root=root) for view in page]
    return _page(request, items, cursor, f"{root}/v1/bulk-operations")


@router.get(
    "/v1/bulk-operations/{bulk_id}",
    operation_id="getBulkOperation",
    summary="See how far a bulk operation is",
    response_model=None,
    responses={200: answer(BulkOperation, "The operation.", BULK_EXAMPLE), **problems(404, 501)},
)
async def get_bulk_operation(request: Request, bulk_id: str, services: Services, identity: Reader) -> Response:
    """Give one operation with its counts and the first jobs that failed."""
    return _shown(request, await services.bulk.find(_bulk_id(bulk_id), tenant=identity.tenant))


@router.get(
    "/v1/bulk-operations/{bulk_id}/items",
    operation_id="listBulkOperationItems",
    summary="List what became of each job",
    response_model=None,
    responses={
        200: answer(BulkJobList, "One page.", {"items": [_ITEM], "next_cursor": None}, Link="The next page, if any."),
        **problems(400, 404, 501),
    },
)
async def list_bulk_operation_items(
    request: Request,
    bulk_id: str,
    services: Services,
    identity: Reader,
    params: Annotated[BulkItemParams, Query()],
) -> Response:
    """Give one page of an operation's jobs by their ids, each with its verdict."""
    refuse_repeated(request, lists=frozenset({"verdict"}))
    wanted = _bulk_id(bulk_id)
    verdicts = sorted(set(params.verdict))
    filters = ("bulk-items", str(wanted), *verdicts)
    after = None if params.cursor is None else read_cursor(params.cursor, filters)
    found = await services.bulk.items(
        wanted, verdicts=verdicts, after=after, limit=params.limit + 1, tenant=identity.tenant
    )
    page = found[: params.limit]
    cursor = write_cursor(page[-1].job_id, filters) if len(found) > len(page) else None
    path = f"{root_of(request)}/v1/bulk-operations/{wanted}/items"
    return _page(request, [item_document(item) for item in page], cursor, path)


@router.post(
    "/v1/bulk-operations/{bulk_id}/abort",
    operation_id="abortBulkOperation",
    summary="Stop a bulk operation",
    response_model=None,
    responses={
        200: answer(
            BulkOperation,
            "The operation, stopped, or as it had ended.",
            BULK_EXAMPLE | {"state": "aborted", "ended_at": "2026-11-29T12:00:05Z", "ended_by": "bootstrap"},
        ),
        **problems(404, 501, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "the wrong filter"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def abort_bulk_operation(request: Request, bulk_id: str, services: Services, identity: Operator) -> Response:
    """Do nothing more; what is done stays done. Repeating it is safe."""
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    if identity.queues is not None:
        selected = (await services.bulk.find(_bulk_id(bulk_id), tenant=identity.tenant)).view.jobs
        if selected.queue is None:
            identity.check_every_queue("this operation")
        else:
            identity.check_queue(selected.queue)
    by = await acting(request, services, identity, sent, sent.parse(ReasonBody).reason)
    return _shown(request, await services.bulk.abort(_bulk_id(bulk_id), by=by, tenant=identity.tenant))


async def reply_bulk(request: Request, services: HttpServices, wanted: BulkRequest, *, dry: bool) -> Response:
    """Make an operation, or count its jobs, and answer with it."""
    notice = notice_of(wanted.jobs)
    if dry:
        counted = await services.bulk.count(wanted)
        return reply(count_document(counted.bulk, counted.count, notice=notice))
    view = await services.bulk.make(wanted)
    document = bulk_document(view, root=root_of(request)) | {"notice": notice}
    return reply(document, status=202, headers={"Location": f"{root_of(request)}/v1/bulk-operations/{view.id}"})


def _bulk_id(text: str) -> BulkId:
    found = read_uuid(text)
    if found is None:
        raise unknown_operation(text)
    return BulkId(found)


def _shown(request: Request, shown: BulkShown) -> Response:
    return reply(bulk_document(shown.view, shown.errors, root=root_of(request)))


def _page(request: Request, items: list[dict[str, object]], cursor: str | None, path: str) -> Response:
    following = str(request.url.include_query_params(cursor=cursor).query)
    headers = {} if cursor is None else {"Link": f'<{path}?{following}>; rel="next"'}
    return reply({"items": items, "next_cursor": cursor}, headers=headers)
