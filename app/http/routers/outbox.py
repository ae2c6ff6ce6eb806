"""The outbox: `GET /v1/outbox`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ...control.represent import outbox_document
from ..answers import Outbox
from ..caller import Reader
from ..documents import JOB_ID, answer, problems
from ..replies import reply
from ..services import Services

router = APIRouter(tags=["outbox"])

_ROW = {
    "id": JOB_ID,
    "name": "receipts.send",
    "queue": "mail",
    "tenant": "default",
    "staged_at": "2026-11-29T11:59:00Z",
    "quarantined_at": "2026-11-29T11:59:01Z",
    "code": "IDEMPOTENCY_MISMATCH",
    "message": "the key 'order:1' of receipts.send belongs to a job with another payload",
}
_EXAMPLE = {
    "staged": {"value": 12, "capped": False},
    "claimed": {"value": 0, "capped": False},
    "quarantined": {"value": 1, "capped": False},
    "deferred": {"value": 0, "capped": False},
    "lag_ms": 40,
    "oldest_at": "2026-11-29T12:00:00Z",
    "items": [_ROW],
}


@router.get(
    "/v1/outbox",
    operation_id="getOutbox",
    summary="See what is staged and not published",
    response_model=None,
    responses={200: answer(Outbox, "The outbox as it stands.", _EXAMPLE), **problems(501)},
)
async def get_outbox(services: Services, identity: Reader) -> Response:
    """Give how much waits in the outbox, for how long, and the newest refused rows that the caller may see."""
    return reply(outbox_document(await services.outbox.view(tenant=identity.tenant)))
