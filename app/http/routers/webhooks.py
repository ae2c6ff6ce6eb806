"""Webhooks: `GET` and `POST /v1/webhooks`, one of them with its rotation and its end, and its deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from ...control.webhooks import delivery_document, webhook_document
from ...domain.api_key import Scope
from ...domain.audit import Acting
from ...domain.errors import Forbidden
from ...domain.webhook import WebhookChange
from ..answers_webhooks import Delivery, DeliveryList, IssuedWebhook, Webhook, WebhookList
from ..auth import Identity
from ..body import Body, read_body, read_optional_body, refuse_request_key
from ..caller import Needs
from ..cursor import read_delivery_cursor, write_delivery_cursor
from ..documents import IDEMPOTENCY_KEY, IF_MATCH, answer, body, problems
from ..framework import refuse_repeated
from ..once import OnceRoute, acting
from ..preconditions import versions_asked
from ..replies import reply, root_of
from ..requests_actions import DeleteParams, ReasonBody
from ..requests_webhooks import DeliveryParams, WebhookBody, WebhookPatch, WebhookRotateBody
from ..services import Services

router = APIRouter(tags=["webhooks"], route_class=OnceRoute)

_Watcher: TypeAlias = Annotated[Identity, Depends(Needs(Scope.OPERATE, about="a webhook"))]
_Keeper: TypeAlias = Annotated[Identity, Depends(Needs(Scope.ADMIN, about="a webhook"))]

_ID = "wh_5f0c8a1be2d34976"
_TIME = "2026-11-30T12:00:00Z"
_WEBHOOK = {
    "id": _ID,
    "tenant": "default",
    "label": "shop backend",
    "url": "https://hooks.example.com/jobs",
    "is_disabled": False,
    "disabled_at": None,
    "disabled_reason": None,
    "secret_number": 1,
    "previous_until": None,
    "created_at": _TIME,
    "created_by": "bootstrap",
    "rotated_at": None,
}
_ISSUED = _WEBHOOK | {"secret": "whsec_…"}
_DISABLED = _WEBHOOK | {"is_disabled": True, "disabled_at": _TIME, "disabled_reason": "the receiver moves"}
_DELIVERY = {
    "id": "7d1f4f0e-6a52-4b6e-9c7e-5a3c1d2e4f60",
    "webhook_id": _ID,
    "message_id": "msg_7d1f4f0e6a524b6e9c7e5a3c1d2e4f60",
    "url": None,
    "state": "delivered",
    "job_id": "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f",
    "job_name": "demo.count_lines",
    "job_state": "done",
    "ended_at": _TIME,
    "carrier_id": "0198c0f4-8d2b-7a11-8f44-2b9f0e1d3c5a",
    "attempts": 1,
    "tries": [{"at": _TIME, "status": 204, "error": None, "duration_ms": 31}],
}
_PENDING = _DELIVERY | {"state": "pending", "carrier_id": None}
_ROTATIONS = {"a day": {}, "an hour, once": {"overlap_ms": 3_600_000, "replaces": 1}}
_MADE = {"label": "shop backend", "url": "https://hooks.example.com/jobs"}


@router.get(
    "/v1/webhooks",
    operation_id="listWebhooks",
    summary="List webhooks, newest first",
    response_model=None,
    responses={200: answer(WebhookList, "At most 1,000.", {"items": [_WEBHOOK]}), **problems(501)},
)
async def list_webhooks(services: Services, identity: _Watcher) -> Response:
    """Give the webhooks of the caller's tenant; never a secret."""
    found = await services.webhooks.list(tenant=identity.tenant)
    return reply({"items": [webhook_document(webhook) for webhook in found]})


@router.post(
    "/v1/webhooks",
    operation_id="createWebhook",
    summary="Make a webhook",
    status_code=201,
    response_model=None,
    responses={
        201: answer(
            IssuedWebhook,
            "The webhook, with its secret this once.",
            _ISSUED,
            Location="The webhook.",
            ETag="Its version.",
        ),
        **problems(400, 501, has_body=True),
    },
    openapi_extra=body(WebhookBody, {"backend": _MADE}, is_required=True),
)
async def create_webhook(request: Request, services: Services, identity: _Keeper) -> Response:
    """Make a webhook that jobs can name in their `callback`. Its `secret` is answered once and never again."""
    refuse_request_key(request)
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(WebhookBody)
    if identity.tenant is not None and asked.tenant not in {None, identity.tenant}:
        raise Forbidden(
            f"the key {identity.name!r} may not make webhooks for another tenant",
            fix="leave `tenant` out, or use a key of that tenant",
        )
    by = Acting(actor=identity.name, reason=asked.reason)
    tenant = identity.tenant or asked.tenant
    issued = await services.webhooks.create(label=asked.label, url=asked.url, tenant=tenant, by=by)
    headers = {"Location": f"{root_of(request)}/v1/webhooks/{issued.webhook.id}", **_tag(issued.webhook.version)}
    return reply(webhook_document(issued.webhook) | {"secret": issued.secret}, status=201, headers=headers)


@router.get(
    "/v1/webhooks/{webhook_id}",
    operation_id="getWebhook",
    summary="Describe a webhook",
    response_model=None,
    responses={200: answer(Webhook, "The webhook.", _WEBHOOK, ETag="Its version."), **problems(404, 501)},
)
async def get_webhook(webhook_id: str, services: Services, identity: _Watcher) -> Response:
    """Give one webhook of the caller's tenant; never its secret."""
    webhook = await services.webhooks.find(webhook_id, tenant=identity.tenant)
    return reply(webhook_document(webhook), headers=_tag(webhook.version))


@router.patch(
    "/v1/webhooks/{webhook_id}",
    operation_id="updateWebhook",
    summary="Change a webhook",
    response_model=None,
    responses={
        200: answer(Webhook, "The webhook, changed.", _DISABLED, ETag="Its new version."),
        **problems(404, 412, has_body=True),
    },
    openapi_extra=body(
        WebhookPatch,
        {
            "disable": {"is_disabled": True, "reason": "the receiver moves"},
            "move": {"url": "https://hooks.example.com/v2/jobs", "is_disabled": False},
        },
        is_required=True,
    )
    | {"parameters": [IF_MATCH, IDEMPOTENCY_KEY]},
)
async def update_webhook(request: Request, webhook_id: str, services: Services, identity: _Keeper) -> Response:
    """Change label or address, or disable and enable deliveries; with `If-Match` only what was looked at."""
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(WebhookPatch)
    by = await acting(request, services, identity, sent, asked.reason)
    change = WebhookChange(label=asked.label, url=asked.url, is_disabled=asked.is_disabled, why=asked.reason)
    webhook = await services.webhooks.change(
        webhook_id, change, versions=versions_asked(request, is_needed=False), tenant=identity.tenant, by=by
    )
    return reply(webhook_document(webhook), headers=_tag(webhook.version))


@router.delete(
    "/v1/webhooks/{webhook_id}",
    operation_id="deleteWebhook",
    summary="Delete a webhook",
    status_code=204,
    response_model=None,
    responses={204: {"description": "It is gone."}, **problems(404, 501)},
    openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
)
async def delete_webhook(
    request: Request,
    webhook_id: str,
    services: Services,
    identity: _Keeper,
    params: Annotated[DeleteParams, Query()],
) -> Response:
    """Delete a webhook with what is known of its deliveries; jobs that name it tell nobody when they end."""
    refuse_repeated(request)
    by = await acting(request, services, identity, Body(), params.reason)
    await services.webhooks.delete(webhook_id, tenant=identity.tenant, by=by)
    return Response(status_code=204)


@router.post(
    "/v1/webhooks/{webhook_id}/rotate",
    operation_id="rotateWebhook",
    summary="Give a webhook a new secret",
    response_model=None,
    responses={
        200: answer(IssuedWebhook, "The webhook, with its new secret this once.", _ISSUED | {"secret_number": 2}),
        **problems(400, 404, 412, 501, has_body=True),
    },
    openapi_extra=body(WebhookRotateBody, _ROTATIONS, is_required=False),
)
async def rotate_webhook(request: Request, webhook_id: str, services: Services, identity: _Keeper) -> Response:
    """Give a webhook a new secret; the one before signs beside it for the overlap, one before that no longer.

    Asked again because its answer was lost, it ends nothing where `replaces` names the secret that was meant.
    """
    refuse_request_key(request)
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(WebhookRotateBody)
    issued = await services.webhooks.rotate(
        webhook_id,
        tenant=identity.tenant,
        by=Acting(actor=identity.name, reason=asked.reason),
        overlap=timedelta(milliseconds=asked.overlap_ms),
        replaces=asked.replaces,
    )
    return reply(webhook_document(issued.webhook) | {"secret": issued.secret})


@router.get(
    "/v1/webhooks/{webhook_id}/deliveries",
    operation_id="listDeliveries",
    summary="List a webhook's deliveries, newest first",
    response_model=None,
    responses={
        200: answer(
            DeliveryList, "A page.", {"items": [_DELIVERY], "next_cursor": None}, Link="The next page, if any."
        ),
        **problems(400, 404, 501),
    },
)
async def list_deliveries(
    request: Request,
    webhook_id: str,
    services: Services,
    identity: _Watcher,
    params: Annotated[DeliveryParams, Query()],
) -> Response:
    """Give what was told to a webhook, with the tries and what the receiver answered."""
    refuse_repeated(request)
    filters = ("deliveries", webhook_id)
    before = None if params.cursor is None else read_delivery_cursor(params.cursor, filters)
    page = await services.webhooks.deliveries(webhook_id, tenant=identity.tenant, before=before, limit=params.limit)
    cursor = None if page.next_before is None else write_delivery_cursor(page.next_before, filters)
    following = str(request.url.include_query_params(cursor=cursor).query)
    path = f"{root_of(request)}/v1/webhooks/{webhook_id}/deliveries"
    headers = {} if cursor is None else {"Link": f'<{path}?{following}>; rel="next"'}
    items = [delivery_document(delivery) for delivery in page.items]
    return reply({"items": items, "next_cursor": cursor}, headers=headers)


@router.post(
    "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend",
    operation_id="resendDelivery",
    summary="Deliver once more",
    status_code=202,
    response_model=None,
    responses={
        202: answer(Delivery, "The delivery, on its way again.", _PENDING),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "the receiver is back"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def resend_delivery(
    request: Request, webhook_id: str, delivery_id: str, services: Services, identity: _Watcher
) -> Response:
    """Tell a webhook once more, under the same `webhook-id`; one that is on its way is not sent beside itself."""
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    by = await acting(request, services, identity, sent, sent.parse(ReasonBody).reason)
    delivery = await services.webhooks.resend(webhook_id, delivery_id, tenant=identity.tenant, by=by)
    return reply(delivery_document(delivery), status=202)


def _tag(version: int) -> dict[str, str]:
    return {"ETag": f'"{version}"'}
