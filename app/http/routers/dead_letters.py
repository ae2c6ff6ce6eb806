"""Dead letters: `GET /v1/dead-letters`, the retry of a group, and the purge of old ones."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...control.bulk import BulkRequest
from ...control.represent_purge import dead_group_document, dead_purge_document
from ...domain.bulk import BulkAction
from ...domain.job import JobId
from ..answers_bulk import BulkCount, BulkOperation
from ..answers_dead import DeadLetterList, DeadLetterPurge
from ..body import read_body
from ..caller import Reader, TenantOperator
from ..documents import IDEMPOTENCY_KEY, answer, body, problems
from ..once import OnceRoute, acting
from ..replies import reply
from ..requests import DeadPurgeBody
from ..requests_bulk import DeadRetryBody
from ..services import Services
from .bulk import BULK_EXAMPLE, COUNT_EXAMPLE, reply_bulk

router = APIRouter(tags=["dead letters"], route_class=OnceRoute)

_GROUP = {
    "name": "receipts.send",
    "reason": "attempts_exhausted",
    "error_type": "TimeoutError",
    "error_code": None,
    "count": 3,
    "first_at": "2026-11-28T12:00:00Z",
    "last_at": "2026-11-29T12:00:00Z",
    "per_hour": [0, 1, *[0] * 21, 2],
    "message": "no answer within ‹n› s",
}
_PURGED = {"dry_run": False, "count": 3, "is_complete": True, "next_after": None}
_EXAMPLES = {
    "old": {"older_than_ms": 2_592_000_000},
    "count": {"older_than_ms": 2_592_000_000, "name": "receipts.send", "dry_run": True},
}
_RETRIES = {
    "group": {
        "group": {"name": "receipts.send", "reason": "attempts_exhausted", "error_type": "TimeoutError"},
        "expected_count": 3,
        "reason": "the mail server is back",
    },
    "count": {"group": {"name": "receipts.send", "reason": "expired"}, "dry_run": True},
}


@router.get(
    "/v1/dead-letters",
    operation_id="listDeadLetters",
    summary="List dead letters in groups",
    response_model=None,
    responses={200: answer(DeadLetterList, "Every group, most dead letters first.", {"items": [_GROUP]}), **problems()},
)
async def list_dead_letters(services: Services, identity: Reader) -> Response:
    """Give dead letters by job type, reason and error, with their number and the times of the first and the last."""
    groups = await services.purge.dead_letters(tenant=identity.tenant)
    return reply({"items": [dead_group_document(group) for group in groups]})


@router.post(
    "/v1/dead-letters/purge",
    operation_id="purgeDeadLetters",
    summary="Delete old dead letters",
    response_model=None,
    responses={200: answer(DeadLetterPurge, "What was deleted, or would be.", _PURGED), **problems(has_body=True)},
    openapi_extra=body(DeadPurgeBody, _EXAMPLES, is_required=True) | {"parameters": [IDEMPOTENCY_KEY]},
)
async def purge_dead_letters(request: Request, services: Services, identity: TenantOperator) -> Response:
    """Delete dead letters older than an age, with their ledgers and runs; they cannot be retried any more.

    A request works for a few seconds at most; while `is_complete` is false, send it again with `after`.
    """
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(DeadPurgeBody)
    done = await services.purge.dead(
        timedelta(milliseconds=asked.older_than_ms),
        name=asked.name,
        tenant=identity.tenant,
        after=None if asked.after is None else JobId(asked.after),
        dry=asked.dry_run,
        by=await acting(request, services, identity, sent, None),
    )
    return reply(dead_purge_document(done, dry=asked.dry_run))


@router.post(
    "/v1/dead-letters/retry",
    operation_id="retryDeadLetters",
    summary="Retry a group of dead letters",
    status_code=202,
    response_model=None,
    responses={
        200: answer(BulkCount, "The dry run: how many jobs it would be.", COUNT_EXAMPLE | {"notice": None}),
        202: answer(
            BulkOperation, "Made; any worker works it off.", BULK_EXAMPLE | {"notice": None}, Location="The operation."
        ),
        **problems(409, has_body=True),
    },
    openapi_extra=body(DeadRetryBody, _RETRIES, is_required=True) | {"parameters": [IDEMPOTENCY_KEY]},
)
async def retry_dead_letters(request: Request, services: Services, identity: TenantOperator) -> Response:
    """Retry all dead letters of one group, as a bulk operation: each goes on from what its run has recorded.

    Send the group as it is listed. With `expected_count`, another number of jobs is refused (`COUNT_CHANGED`).
    """
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(DeadRetryBody)
    wanted = BulkRequest(
        action=BulkAction.RETRY,
        by=await acting(request, services, identity, sent, asked.reason),
        jobs=asked.group.jobs(),
        tenant=identity.tenant,
        expected_count=asked.expected_count,
    )
    return await reply_bulk(request, services, wanted, dry=asked.dry_run)
