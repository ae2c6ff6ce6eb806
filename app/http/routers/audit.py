"""The audit: `GET /v1/audit`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.audit import audit_document
from ...domain.audit import AuditQuery
from ..answers_audit import AuditList
from ..caller import Operator, visible_tenant
from ..cursor import read_number_cursor, write_number_cursor
from ..documents import JOB_ID, answer, problems
from ..framework import refuse_repeated
from ..replies import reply, root_of
from ..requests_actions import AuditParams
from ..services import Services

router = APIRouter(tags=["audit"])

_ROW = {
    "id": "0198c0f5-1f2e-7c3d-8b4a-2d1c0b9a8f7e",
    "at": "2026-11-29T12:00:00Z",
    "actor": "bootstrap",
    "action": "job.update",
    "target": {"kind": "job", "id": JOB_ID},
    "tenant": "default",
    "reason": "the customer waits",
    "outcome": "done",
    "details": {"before": {"priority": 5}, "after": {"priority": 1}},
}


@router.get(
    "/v1/audit",
    operation_id="listAudit",
    summary="List what operators did, newest first",
    response_model=None,
    responses={
        200: answer(AuditList, "One page.", {"items": [_ROW], "next_cursor": None}, Link="The next page, if any."),
        **problems(400),
    },
)
async def list_audit(
    request: Request, services: Services, identity: Operator, params: Annotated[AuditParams, Query()]
) -> Response:
    """Give one page of the audit: a row for every action that changed something, written in its own commit.

    A key of one tenant sees that tenant's rows, and those about queues, workers, schedules, limits and the store as a
    whole, without what they say of another tenant; whoever acted with no key of its own is `operator`. `next_cursor`
    continues a page under the same filters; while there is one, a page may be short.
    """
    refuse_repeated(request)
    tenant = visible_tenant(identity, params.tenant)
    times = [None if at is None else at.isoformat() for at in (params.created_after, params.created_before)]
    filters = ("audit", params.actor, params.action, params.target_kind, params.target, tenant, *times)
    page = await services.audit.list(
        AuditQuery(
            actor=params.actor,
            action=params.action,
            target_kind=params.target_kind,
            target=params.target,
            tenant=tenant,
            since=params.created_after,
            until=params.created_before,
            before=None if params.cursor is None else read_number_cursor(params.cursor, filters),
            limit=params.limit,
        ),
        seen_by=identity.tenant,
    )
    cursor = None if page.next_before is None else write_number_cursor(page.next_before, filters)
    following = str(request.url.include_query_params(cursor=cursor).query)
    headers = {} if cursor is None else {"Link": f'<{root_of(request)}/v1/audit?{following}>; rel="next"'}
    return reply({"items": [audit_document(row) for row in page.items], "next_cursor": cursor}, headers=headers)
